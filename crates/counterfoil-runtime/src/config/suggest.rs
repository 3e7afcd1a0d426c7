//! "Did you mean": the nearest of a few known words.
//!
//! A suggestion must be right more often than not, or people stop reading them: strangers get none. Bounded, because the words
//! come from a file.

/// Words longer than this are not compared: nobody mistypes those, and the comparison is quadratic.
const WORD_CHARS_MAX: usize = 64;

/// The known word that `word` is most likely a slip of, if any is near enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = plain(word);
    if written.is_empty() || written.len() > WORD_CHARS_MAX {
        return None;
    }
    let near = |candidate: &&'a str| {
        let candidate = plain(candidate);
        let distance = distance(&written, &candidate);
        // A third of the letters may be wrong; of short words one, and never all.
        let tolerated = (written.len().max(candidate.len()) / 3).max(1);
        (distance <= tolerated && distance < written.len()).then_some(distance)
    };
    known.into_iter().filter_map(|candidate| near(&candidate).map(|d| (d, candidate))).min_by_key(|(d, _)| *d).map(|(_, c)| c)
}

/// `Time-Out` and `time_out` are the same word.
fn plain(word: &str) -> Vec<char> {
    word.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// Edit distance in which exchanging two neighbours is one slip, as it is for fingers.
fn distance(a: &[char], b: &[char]) -> usize {
    let width = b.len() + 1;
    let mut rows = vec![0usize; (a.len() + 1) * width];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i * width + j] = if i == 0 || j == 0 {
                i + j
            } else {
                let above = (i - 1) * width + j;
                let same = usize::from(a[i - 1] != b[j - 1]);
                let mut least = (rows[above] + 1).min(rows[i * width + j - 1] + 1).min(rows[above - 1] + same);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    least = least.min(rows[(i - 2) * width + j - 2] + 1);
                }
                least
            };
        }
    }
    rows[a.len() * width + b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_leaves_strangers_alone() {
        let known = ["timeout", "deadline", "retry", "key", "lease", "on_in_flight", "http"];
        let check = |word: &str, expected: Option<&str>| assert_eq!(nearest(word, known), expected, "{word}");
        check("timout", Some("timeout"));
        check("Timeout", Some("timeout"));
        check("time-out", Some("timeout"));
        check("tiemout", Some("timeout"));
        check("retyr", Some("retry"));
        check("retries", None);
        check("keys", Some("key"));
        check("onInFlight", Some("on_in_flight"));
        check("htpp", Some("http"));
        check("x", None);
        check("", None);
        check("çà", None);
        check(&"timeout".repeat(20_000), None);
    }
}

//! Text as HTML. Everything that is not markup of this page goes through here.

pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// One line of prose: what stands in backticks is code.
pub fn line(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(i, part)| if i % 2 == 1 { code(part) } else { escaped(part) }).collect()
}

/// Paragraphs of prose.
pub fn prose(text: &str) -> String {
    text.split("\n\n").filter(|part| !part.is_empty()).map(|part| format!("<p>{}</p>", line(part))).collect()
}

pub fn code(text: &str) -> String {
    format!("<code>{}</code>", escaped(text))
}

/// Something that is copied whole. It can be scrolled with the keyboard.
pub fn block(label: &str, text: &str) -> String {
    format!("<pre tabindex=\"0\" role=\"region\" aria-label=\"{}\"><code>{}</code></pre>", escaped(label), escaped(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_told_becomes_markup() {
        assert_eq!(line("a `<b>` & \"c\""), "a <code>&lt;b&gt;</code> &amp; &quot;c&quot;");
        assert_eq!(prose("one\n\ntwo"), "<p>one</p><p>two</p>");
    }
}

//! What a token allows. The rights are a ladder: each includes those below it, so the highest says it all.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// One thing that a token may allow. Each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// Ask for side effects, and read what came of them.
    Call,
    /// Do what a person does about them: approve, resolve, retry, cancel, undo, reset breakers.
    Operate,
    /// Change what everyone meets: tools, modes, retention.
    Admin,
}

impl Right {
    pub const ALL: [Self; 3] = [Self::Call, Self::Operate, Self::Admin];

    pub fn word(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

/// What a token allows: a right and all that it includes. Written as a list, `call,operate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rights {
    highest: Right,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{shown:?} is no right; there are call, operate and admin (each includes those before it), several as call,operate")]
pub struct NoSuchRight {
    shown: String,
}

impl Rights {
    pub fn up_to(highest: Right) -> Self {
        Self { highest }
    }

    pub fn allow(self, right: Right) -> bool {
        right <= self.highest
    }

    /// All of them, the least first.
    pub fn each(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.allow(*right))
    }
}
impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.each().map(Right::word).collect();
        f.pad(&words.join(","))
    }
}
impl FromStr for Rights {
    type Err = NoSuchRight;
    fn from_str(text: &str) -> Result<Self, NoSuchRight> {
        let mut highest = None;
        for word in text.split(',').map(str::trim) {
            let right = Right::ALL.into_iter().find(|right| right.word() == word);
            highest = highest.max(Some(right.ok_or_else(|| NoSuchRight { shown: word.chars().take(40).collect() })?));
        }
        Ok(Self::up_to(highest.expect("a split gives at least one part")))
    }
}
impl Serialize for Rights {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.each())
    }
}
impl<'de> Deserialize<'de> for Rights {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let highest = Vec::<Right>::deserialize(d)?.into_iter().max();
        highest.map(Self::up_to).ok_or_else(|| serde::de::Error::custom("a token without rights"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_right_includes_those_below_it() {
        let check = |text: &str, printed: &str, allowed: [bool; 3]| {
            let rights: Rights = text.parse().unwrap();
            assert_eq!(rights.to_string(), printed, "{text}");
            assert_eq!(Right::ALL.map(|right| rights.allow(right)), allowed, "{text}");
            assert_eq!(printed.parse(), Ok(rights), "what is printed can be typed");
            let stored = serde_json::to_string(&rights).unwrap();
            assert_eq!(serde_json::from_str::<Rights>(&stored).unwrap(), rights, "{stored}");
        };
        check("call", "call", [true, false, false]);
        check("operate", "call,operate", [true, true, false]);
        check("call,operate", "call,operate", [true, true, false]);
        check("operate, call", "call,operate", [true, true, false]);
        check("admin", "call,operate,admin", [true, true, true]);
        check("call,admin,call", "call,operate,admin", [true, true, true]);
    }

    #[test]
    fn what_is_no_right_is_refused_with_the_list_of_rights() {
        for text in ["", "root", "call,", ",call", "call,,operate", "Call", "call;operate", "call operate", "*", "é"] {
            let refused = text.parse::<Rights>().unwrap_err().to_string();
            assert!(refused.contains("call, operate and admin"), "{text:?}: {refused}");
        }
        assert!("x".repeat(1 << 20).parse::<Rights>().unwrap_err().to_string().len() < 200, "a message is for reading");
        for stored in ["[]", r#"["root"]"#, r#""call""#, "null"] {
            assert!(serde_json::from_str::<Rights>(stored).is_err(), "{stored}");
        }
    }
}

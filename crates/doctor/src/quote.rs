//! Quoting of words for POSIX shells.

/// `word`, quoted so that a POSIX shell reads it as one word.
///
/// A word of letters, digits and `%+-./:=@_,` stays as it is; any other is put between single
/// quotes.
pub fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+-./:=@_,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_words_stay_plain() {
        for word in ["torch==2.7.0", "https://data.pyg.org/whl/torch-2.7.0+cu128.html", "/usr/bin/python3", "-m"] {
            assert_eq!(quote(word), word);
        }
        assert_eq!(quote(""), "''");
        assert_eq!(quote("/opt/my env/bin/python"), "'/opt/my env/bin/python'");
    }

    proptest! {
        #[test]
        fn a_shell_reads_the_word_back(word in "[^\0]{0,20}") {
            let shell = Command::new("sh").args(["-c", &format!("printf %s {}", quote(&word))]).output().unwrap();
            prop_assert!(shell.status.success());
            prop_assert_eq!(shell.stdout, word.as_bytes());
        }
    }
}

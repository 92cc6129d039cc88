//! How a command ends: its exit code, and errors as an `error:` and a `hint:` line on standard error. It decides nothing
//! about what is an error.

use std::io::{self, Write};

use crate::Error;

/// How a command ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// It went through, but some of its inputs were bad; each was told when it was met.
    SomeBad,
    /// Nothing came of any input; each was told when it was met.
    AllBad,
}

impl Outcome {
    /// `SomeBad` if `bad`.
    pub(super) fn bad_if(bad: bool) -> Self {
        if bad { Self::SomeBad } else { Self::Done }
    }
}

/// The exit code of a command; prints the error, if it is one.
pub(super) fn exit_code(result: anyhow::Result<Outcome>) -> u8 {
    match result {
        Ok(Outcome::Done) => 0,
        Ok(Outcome::SomeBad) => 1,
        Ok(Outcome::AllBad) => 2,
        // The reader of our output has seen enough: no failure.
        Err(error) if is_closed_pipe(&error) => 0,
        Err(error) => {
            report(&error);
            2
        }
    }
}

/// Prints what the parser of the arguments has to say; help and version are no errors.
pub(super) fn usage(error: &clap::Error) -> u8 {
    // A closed pipe while help is printed is as good as having read it.
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// Prints an error and its advice.
pub(super) fn report(error: &anyhow::Error) {
    let mut text = format!("error: {}\n", sentence(error));
    if let Some(hint) = error.chain().find_map(|cause| cause.downcast_ref::<Error>()?.hint()) {
        text.push_str(&format!("hint: {hint}\n"));
    }
    tell(&text);
}

/// Prints something that the user should know and that is no error.
pub(super) fn warn(message: &str) {
    tell(&format!("warning: {message}\n"));
}

/// Prints a line about what is going on.
pub(super) fn note(message: &str) {
    tell(&format!("{message}\n"));
}

/// Writes in one piece; where standard error is closed there is nobody to tell.
fn tell(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The chain of causes in one line. An error of the library names its own cause.
fn sentence(error: &anyhow::Error) -> String {
    let mut parts = Vec::new();
    for cause in error.chain() {
        parts.push(cause.to_string());
        if cause.is::<Error>() {
            break;
        }
    }
    parts.join(": ")
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use anyhow::Context;

    #[test]
    fn a_cause_is_named_once() {
        let cause = Error::io("cannot open the shard", io::Error::from(io::ErrorKind::NotFound)).in_shard("a.tar");
        let expected = format!("while listing: {cause}");
        let error = Err::<(), _>(cause).context("while listing").unwrap_err();
        assert_eq!(sentence(&error), expected);
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let error = |kind| Err(anyhow::Error::from(io::Error::from(kind)).context("cannot print"));
        assert_eq!(exit_code(error(io::ErrorKind::BrokenPipe)), 0);
        assert_eq!(exit_code(Err(Error::new(ErrorKind::NotTar, "this is no tar archive").into())), 2);
        assert_eq!(exit_code(Ok(Outcome::SomeBad)), 1);
    }
}

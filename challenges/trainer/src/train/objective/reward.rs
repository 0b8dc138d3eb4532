//! A program that says what completions are worth.
//!
//! ```text
//! standard input     {"prompt": .., "completion": .., what the data's line has beside}      a line a completion
//! standard output    0.5                                                                    a number a line
//! ```
//!
//! It is started once a step, with all completions of the step in their order. Its command line is split at blanks,
//! quotes hold words together, and no shell reads it. What it writes to standard error is shown where it fails.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

/// A program and how long it may take.
#[derive(Clone, Debug, PartialEq)]
pub struct RewardProgram {
    words: Vec<String>,
    limit: Duration,
}

/// Bytes of an answer that are read.
const MOST: u64 = 64 << 20;

/// The interval at which a running program is checked.
const GLANCE: Duration = Duration::from_millis(5);

impl RewardProgram {
    /// A program by its command line.
    ///
    /// Fails where that has no word, or a quote without an end.
    pub fn new(command: &str, limit: Duration) -> Result<Self, String> {
        let words = words(command)?;
        if words.is_empty() {
            return Err("expected a command line, found none".to_owned());
        }
        Ok(Self { words, limit })
    }

    /// The reward of each line.
    ///
    /// Fails where the program cannot be started, takes too long, ends with another code than 0, or answers something
    /// else than a finite number a line.
    pub fn rewards(&self, lines: &[Json]) -> Result<Vec<f64>, String> {
        let mut child = self.start()?;
        let given: String = lines.iter().flat_map(|line| [line.to_string(), "\n".to_owned()]).collect();
        if let Some(mut stdin) = child.stdin.take() {
            // one that answers without reading to the end is no failure
            thread::spawn(move || stdin.write_all(given.as_bytes()));
        }
        let (answer, complaint) = (read(child.stdout.take()), read(child.stderr.take()));
        let begin = Instant::now();
        let status = loop {
            match child.try_wait().map_err(|error| error.to_string())? {
                Some(status) => break status,
                None if begin.elapsed() > self.limit => {
                    stop(&mut child);
                    return Err(self.too_long());
                }
                None => thread::sleep(GLANCE),
            }
        };
        let rest = || self.limit.saturating_sub(begin.elapsed()).max(GLANCE);
        if !status.success() {
            let complaint = complaint.recv_timeout(rest()).unwrap_or_default();
            let complaint = String::from_utf8_lossy(&complaint);
            let last = complaint.trim().lines().last().unwrap_or("nothing on standard error").to_owned();
            return Err(format!("expected exit code 0, found {status}: {last}"));
        }
        let answer = answer.recv_timeout(rest()).map_err(|_| self.too_long())?;
        numbers(&answer, lines.len())
    }

    fn start(&self) -> Result<Child, String> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0); // Ctrl-C lets the run finish its step
        command.spawn().map_err(|error| format!("{:?} cannot be started: {error}", self.words[0]))
    }

    fn too_long(&self) -> String {
        format!("expected an answer within {} s (reward_timeout), found none", self.limit.as_secs_f64())
    }
}

/// All that is written to a pipe, read by a thread of its own: a program that a child has left behind may hold the pipe
/// open, and nobody waits for that.
fn read(pipe: Option<impl std::io::Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.map(|pipe| pipe.take(MOST).read_to_end(&mut bytes)); // what could be read is what there is
        sender.send(bytes)
    });
    receiver
}

fn stop(child: &mut Child) {
    let _ = child.kill(); // it may have ended by itself
    let _ = child.wait();
}

/// The numbers of an answer.
fn numbers(answer: &[u8], count: usize) -> Result<Vec<f64>, String> {
    let text = std::str::from_utf8(answer)
        .map_err(|_| "expected numbers, found bytes that are no UTF-8".to_owned())?;
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() != count {
        return Err(format!("expected {count} numbers, one a line, found {} lines", lines.len()));
    }
    let number = |(line, text): (usize, &&str)| match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(format!("line {line}: expected a finite number, found {:?}", shortened(text))),
    };
    (1..).zip(&lines).map(number).collect()
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The words of a command line.
fn words(line: &str) -> Result<Vec<String>, String> {
    let (mut all, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => all.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(format!("expected {open} at the end of a word, found the end of the command line"));
    }
    all.extend(word);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_split_at_blanks_outside_quotes() {
        let found = |line: &str| words(line).expect("words");
        assert_eq!(found("  python3  judge.py\t-n 3 "), ["python3", "judge.py", "-n", "3"]);
        assert_eq!(found("a 'b c' d\"e f\"g '' \"it's\""), ["a", "b c", "de fg", "", "it's"]);
        assert!(found("").is_empty());
        words("a 'b").expect_err("a quote without an end");
        RewardProgram::new(" ", GLANCE).expect_err("no program");
    }

    #[test]
    fn an_answer_is_a_finite_number_a_line() {
        assert_eq!(numbers(b"1\n -2.5 \r\n1e3", 3), Ok(vec![1.0, -2.5, 1000.0]));
        for (answer, count) in [(&b"1\n2"[..], 3), (b"1\n2\n3\n4", 3), (b"", 1), (b"NaN", 1), (b"inf", 1)] {
            numbers(answer, count).expect_err("another number of lines, or no number");
        }
        let told = numbers(b"1\nbad", 2).expect_err("no number");
        assert_eq!(told, "line 2: expected a finite number, found \"bad\"");
    }
}

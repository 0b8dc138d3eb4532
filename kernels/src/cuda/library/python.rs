//! Where the Python on `PATH` keeps its packages: asked once, with a time limit.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// A Python that answered.
#[derive(Debug)]
pub(super) struct Python {
    /// Its program.
    pub program: PathBuf,
    /// Its `sys.path`.
    pub path: Vec<PathBuf>,
}

/// How long a Python may take: a cold start from a slow disk is well below it.
const LIMIT: Duration = Duration::from_secs(5);

const QUESTION: &str = r"import sys; print('\n'.join(sys.path))";

/// The first Python that answers, or what became of it in a few words.
pub(super) fn ask() -> &'static Result<Python, String> {
    static ANSWER: OnceLock<Result<Python, String>> = OnceLock::new();
    ANSWER.get_or_init(|| {
        let mut message = None;
        for program in ["python3", "python"].into_iter().filter_map(on_path) {
            match sys_path(&program) {
                Ok(path) => return Ok(Python { program, path }),
                Err(why) => message = message.or_else(|| Some(format!("{} ({why})", program.display()))),
            }
        }
        Err(message.unwrap_or_else(|| "the wheels of a Python (none is on PATH)".into()))
    })
}

fn on_path(name: &str) -> Option<PathBuf> {
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(&file)).find(|file| file.is_file())
}

fn sys_path(program: &PathBuf) -> Result<Vec<PathBuf>, String> {
    let mut command = Command::new(program);
    command.args(["-c", QUESTION]).env("PYTHONIOENCODING", "utf-8");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let answer = within(&mut child, Instant::now() + LIMIT);
    let _ = child.kill();
    let _ = child.wait();
    Ok(answer?.lines().filter(|line| !line.is_empty()).map(PathBuf::from).collect())
}

/// What a child prints, if it ends well before the deadline.
fn within(child: &mut Child, deadline: Instant) -> Result<String, String> {
    let (send, receive) = mpsc::channel();
    let mut output = child.stdout.take().ok_or("has no output")?;
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = output.read_to_end(&mut text).map(|_| text);
        let _ = send.send(read); // nobody listens any more after the deadline
    });
    let late = || format!("no answer in {} s", LIMIT.as_secs());
    let left = deadline.saturating_duration_since(Instant::now());
    let text = receive.recv_timeout(left).map_err(|_| late())?.map_err(|error| error.to_string())?;
    while Instant::now() < deadline {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(String::from_utf8_lossy(&text).into_owned()),
            Some(status) => return Err(status.to_string()),
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(late())
}

//! `cargo dev book serve`: the pages on 127.0.0.1, built again whenever a source changes.
//!
//! A build goes into a fresh folder which then takes the old one's place, so a chapter with a fault leaves
//! the last good pages up. Files are watched by their times, twice a second: a few hundred of them, on every
//! system alike. A page asks for the build's number once a second and loads itself again when it has moved;
//! that script is added while serving and is in no built page.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::Error;

/// The pages that are up and how many builds came before them.
struct Build {
    pages: TempDir,
    number: u64,
}

type Shared = Arc<Mutex<Build>>;

/// What a served page runs besides its own scripts.
const RELOAD: &str = "<script>(() => { let seen; setInterval(async () => { try {
const now = await (await fetch('/.build')).text();
if (seen !== undefined && now !== seen) location.reload(); seen = now; } catch {} }, 1000); })();</script>";

/// Builds the book, serves it, and builds it again on every change. Ends only by an error or a signal.
///
/// # Errors
/// Where the first build fails or the port is taken.
pub fn serve(root: &Path, port: u16) -> Result<(), Error> {
    let shared = Arc::new(Mutex::new(Build { pages: build(root)?, number: 0 }));
    let address = format!("127.0.0.1:{port}");
    let failed = |source| Error::File { path: PathBuf::from(&address), source };
    let listener = TcpListener::bind(&address).map_err(failed)?;
    println!("http://{address}");
    let (watched, watcher) = (root.to_path_buf(), Arc::clone(&shared));
    std::thread::spawn(move || watch(&watched, &watcher));
    for stream in listener.incoming().flatten() {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || answer(stream, &shared));
    }
    Ok(())
}

fn build(root: &Path) -> Result<TempDir, Error> {
    let folder = tempfile::tempdir().map_err(|source| Error::File { path: std::env::temp_dir(), source })?;
    crate::build(root, Some(folder.path()))?;
    Ok(folder)
}

fn watch(root: &Path, shared: &Shared) {
    let mut last = newest(root);
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = newest(root);
        if now != last {
            last = now;
            rebuild(root, shared);
        }
    }
}

fn rebuild(root: &Path, shared: &Shared) {
    match build(root) {
        Ok(pages) => {
            let mut build = shared.lock().unwrap_or_else(PoisonError::into_inner);
            *build = Build { pages, number: build.number + 1 };
            println!("built again");
        }
        Err(error) => eprintln!("{error}"),
    }
}

/// How many sources there are and when the last of them changed: chapters, their pictures, and the code
/// that they include.
fn newest(root: &Path) -> (usize, Option<SystemTime>) {
    let mut times = Vec::new();
    for folder in ["src", "theme", "../reference/src", "../kernels", "../challenges/src", "../grader"] {
        collect(&root.join(folder), &mut times);
    }
    (times.len(), times.into_iter().max())
}

fn collect(folder: &Path, times: &mut Vec<SystemTime>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(data) if data.is_dir() => collect(&entry.path(), times),
            Ok(data) => times.extend(data.modified().ok()),
            Err(_) => {}
        }
    }
}

/// Answers one request; a browser that hangs up is no error.
fn answer(mut stream: TcpStream, shared: &Shared) {
    let mut line = String::new();
    if BufReader::new(&stream).read_line(&mut line).is_err() {
        return;
    }
    let (status, kind, body) = respond(&line, shared);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
}

type Response = (&'static str, &'static str, Vec<u8>);

/// The answer to a request line.
fn respond(line: &str, shared: &Shared) -> Response {
    let build = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or("/"));
    let path = target.split(['?', '#']).next().unwrap_or("/").trim_start_matches('/');
    if method != "GET" {
        return ("405 Method Not Allowed", "text/plain", b"only GET".to_vec());
    }
    if path == ".build" {
        return ("200 OK", "text/plain", build.number.to_string().into_bytes());
    }
    file(build.pages.path(), path).unwrap_or_else(|| {
        let page = std::fs::read(build.pages.path().join("404.html")).unwrap_or_default();
        ("404 Not Found", "text/html; charset=utf-8", page)
    })
}

/// A file below the folder; nothing above it can be named.
fn file(folder: &Path, path: &str) -> Option<Response> {
    if path.split(['/', '\\']).any(|part| part == ".." || part.contains(':')) {
        return None;
    }
    let mut file = folder.join(path);
    if file.is_dir() {
        file.push("index.html");
    }
    let mut body = std::fs::read(&file).ok()?;
    let kind = kind(&file);
    if kind.starts_with("text/html") {
        body.extend_from_slice(RELOAD.as_bytes());
    }
    Some(("200 OK", kind, body))
}

fn kind(file: &Path) -> &'static str {
    match file.extension().and_then(|e| e.to_str()).unwrap_or("") {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css",
        "js" => "text/javascript",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "json" => "application/json",
        "woff2" => "font/woff2",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        let pages = tempfile::tempdir().unwrap();
        std::fs::write(pages.path().join("index.html"), "<p>here").unwrap();
        Arc::new(Mutex::new(Build { pages, number: 7 }))
    }

    #[test]
    fn a_page_is_served_and_told_to_reload() {
        let (status, kind, body) = respond("GET / HTTP/1.1\r\n", &shared());
        let body = String::from_utf8(body).unwrap();
        assert_eq!((status, kind), ("200 OK", "text/html; charset=utf-8"));
        assert!(body.starts_with("<p>here<script>"), "{body}");
        assert_eq!(respond("GET /.build HTTP/1.1\r\n", &shared()).2, b"7");
    }

    #[test]
    fn nothing_above_the_pages_is_served() {
        for path in ["/../Cargo.toml", "/..\\Cargo.toml", "/C:/x", "/gone.html"] {
            assert_eq!(respond(&format!("GET {path} HTTP/1.1"), &shared()).0, "404 Not Found", "{path}");
        }
    }
}

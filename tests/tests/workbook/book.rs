//! *Look*: the book in a real browser.
//!
//! The pages are checked as text by `book::check`. This test loads all of them in one Chromium, each in a frame as wide
//! as a screen and in one as wide as a phone, and asks the browser: did a script or a file fail, is each formula drawn
//! and in its font, is each picture there and its smallest word 11 pixels high, does the page scroll sideways, does a
//! shadow lie on everything that scrolls on its own. Without Chromium the test prints `not measured`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The browsers that are looked for on the path.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// All pages together may take this long.
const LIMIT: Duration = Duration::from_mins(6);

/// The widths of a screen and of a phone, in pixels.
const WIDTHS: [usize; 2] = [1280, 390];

/// Added to each page: sends what the browser found to the page around the frame.
const PROBE: &str = r"<script>addEventListener('load', () => {
const found = [], box = e => e.getBoundingClientRect();
for (const e of document.querySelectorAll('details')) e.open = true;
for (const e of document.images) if (!e.complete || !e.naturalWidth) found.push('missing picture ' + e.src);
for (const e of document.querySelectorAll('main svg')) if (!box(e).height) found.push('empty drawing');
for (const e of document.querySelectorAll('math'))
  if (!box(e).height || e.querySelector('merror')) found.push('formula not drawn: ' + e.textContent);
for (const e of document.querySelectorAll('html, .content'))
  if (e.scrollWidth > e.clientWidth) found.push('scrolls sideways: ' + e.scrollWidth + ' in ' + e.clientWidth);
const wide = e => e.scrollWidth > e.clientWidth && /auto|scroll/.test(getComputedStyle(e).overflowX);
for (const e of document.querySelectorAll('main *'))
  if (wide(e) && !getComputedStyle(e).backgroundAttachment.includes('local'))
    found.push('scrolls without a shadow: ' + e.tagName + ' ' + e.className);
for (const e of document.querySelectorAll('main svg text')) {
  const height = parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a;
  if (height < 10.99) found.push('a word of ' + height.toFixed(1) + ' pixels: ' + e.textContent);
}
const font = [...document.fonts].find(font => font.family.includes('STIX Two Math'));
if (document.querySelector('math') && font?.status !== 'loaded') found.push('formulas without their font');
const answer = JSON.stringify({ found, html: document.documentElement.outerHTML }).replace(/</g, '\\u003c');
top.document.getElementById(frameElement.name).textContent = answer;
});</script>";

#[test]
fn every_link_formula_and_code_block_of_the_book_holds() {
    let seen = ::book::check::check(&::book::root()).unwrap_or_else(|error| panic!("{error}"));
    println!("{seen}");
}

#[test]
fn every_page_loads_in_a_browser_without_errors() {
    let Some(browser) = BROWSERS.into_iter().find_map(on_path) else {
        println!("not measured: no Chromium on the path");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let pages = probed(folder.path());
    let frames: Vec<Frame> =
        WIDTHS.into_iter().flat_map(|width| pages.iter().map(move |page| Frame { page, width })).collect();
    let (dom, log) = load(&browser, folder.path(), &frames).unwrap_or_else(|error| panic!("{error}"));
    let mut faults: Vec<String> =
        log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    let answers = answers(&dom);
    for (number, frame) in frames.iter().enumerate() {
        let found = answers.get(number).map_or_else(|| vec!["not loaded to its end".to_owned()], page_faults);
        let name = format!("{} at {}", frame.page.file_name().unwrap_or_default().display(), frame.width);
        faults.extend(found.into_iter().map(|what| format!("{name}: {what}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A page at a width.
struct Frame<'a> {
    page: &'a Path,
    width: usize,
}

/// The faults of a page that answered, as the browser and the checker name them.
fn page_faults(answer: &Value) -> Vec<String> {
    let Some(found) = answer["found"].as_array() else { return vec!["not loaded to its end".to_owned()] };
    let found = found.iter().map(|what| what.as_str().unwrap_or_default().to_owned());
    let html = format!("<!DOCTYPE html>{}", answer["html"].as_str().unwrap_or_default());
    found.chain(::book::check::page(&html)).collect()
}

/// A page with a frame for each page, and below each frame the JSON element that the probe writes its answer to. The
/// text of a script element is not escaped when it is printed.
fn around(frames: &[Frame]) -> String {
    frames.iter().enumerate().fold("<!DOCTYPE html>\n".to_owned(), |mut html, (number, frame)| {
        let (page, width) = (frame.page.display(), frame.width);
        let _ = writeln!(
            html,
            "{ANSWER} id=\"{number}\"></script><iframe name=\"{number}\" src=\"file://{page}\" width=\"{width}\" \
             height=\"900\"></iframe>"
        );
        html
    })
}

/// The beginning of an element with an answer.
const ANSWER: &str = "<script type=\"application/json\"";

/// The answers of the probes in the order of their frames; null if a frame did not load to its end.
fn answers(dom: &str) -> Vec<Value> {
    let elements =
        dom.split(ANSWER).skip(1).filter_map(|element| element.split_once('>')?.1.split("</script>").next());
    elements.map(|text| serde_json::from_str(text).unwrap_or_default()).collect()
}

/// The elements of the page around all frames after their scripts have run, and the browser's log.
fn load(browser: &Path, folder: &Path, frames: &[Frame]) -> Result<(String, String), String> {
    let page = folder.join("frames.html");
    fs::write(&page, around(frames)).map_err(|error| error.to_string())?;
    let (out, log) = (folder.join("dom.html"), folder.join("log.txt"));
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"])
        .args(["--enable-logging=stderr", "--v=0", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .args(["--window-size=1300,900", "--disable-web-security", "--allow-file-access-from-files"])
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stdout(File::create(&out).map_err(|error| error.to_string())?)
        .stderr(File::create(&log).map_err(|error| error.to_string())?)
        .spawn()
        .map_err(|error| error.to_string())?;
    let begin = Instant::now();
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if begin.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("not loaded after {LIMIT:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let read = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok((read(&out).map_err(|error| error.to_string())?, read(&log).map_err(|error| error.to_string())?))
}

/// Builds the book and adds the probe to its pages. The page for addresses that lead nowhere is left out:
/// it speaks of a site's root, which a folder does not have.
fn probed(folder: &Path) -> Vec<PathBuf> {
    let built =
        ::book::build(&::book::root(), Some(&folder.join("pages"))).unwrap_or_else(|error| panic!("{error}"));
    let mut pages: Vec<PathBuf> = fs::read_dir(built)
        .expect("the pages")
        .map(|entry| entry.expect("a page").path())
        .filter(|path| path.extension().is_some_and(|e| e == "html") && !path.ends_with("404.html"))
        .collect();
    pages.sort();
    for page in &pages {
        let html = fs::read_to_string(page).expect("a page");
        fs::write(page, html.replacen("</head>", &format!("{PROBE}</head>"), 1))
            .expect("a page with its probe");
    }
    pages
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

//! The chores: `cargo dev CHORE`.

use std::path::PathBuf;
use std::process::ExitCode;

use book::{Error, drawn, gpu_tests, preprocess, ptx, serve, stubs};

const USAGE: &str = "\
usage: cargo dev CHORE

  book build [FOLDER]        build the pages (default: book/book)
  book serve [PORT]          build, serve on 127.0.0.1 (default: 3000), build again on every change
  book check                 build, then hold links, formulas, code blocks and addresses to the rules
  ptx                        compile the kernels whose PTX is kept
  stubs                      write every exercise from its solution
  figures                    draw the figures that are computed
  gpu-tests                  pack the tests for a machine with a GPU and without Rust
  check                      hold exercises, book and pictures to the rules
  preprocessor [supports R]  mdBook's protocol on stdin and stdout";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["book", "build"] => ended(build(None)),
        ["book", "build", folder] => ended(build(Some(folder))),
        ["book", "serve"] => ended(serve::serve(&book::root(), 3000)),
        ["book", "serve", port] if port.parse::<u16>().is_ok() => {
            ended(serve::serve(&book::root(), port.parse().unwrap_or(3000)))
        }
        ["book", "check"] => ended(check()),
        ["gpu-tests"] => ended(gpu_tests::pack(&workbook())),
        ["ptx"] => ended(ptx::write(&workbook())),
        ["stubs"] => ended(stubs::write(&workbook())),
        ["figures"] => ended(drawn::write(&book::root())),
        ["check"] => {
            ended(stubs::check(&workbook()).and_then(|()| drawn::check(&book::root())).and_then(|()| check()))
        }
        ["preprocessor"] => ended(preprocess::stdin_to_stdout()),
        ["preprocessor", "supports", renderer] => ExitCode::from(u8::from(!preprocess::supports(renderer))),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn ended(result: Result<(), Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The folder above the book's.
fn workbook() -> PathBuf {
    book::root().parent().map_or_else(|| PathBuf::from("."), PathBuf::from)
}

fn build(folder: Option<&str>) -> Result<(), Error> {
    let dest = folder.map(|folder| std::path::absolute(folder).unwrap_or_else(|_| PathBuf::from(folder)));
    let pages = book::build(&book::root(), dest.as_deref())?;
    println!("{}", pages.join("index.html").display());
    Ok(())
}

fn check() -> Result<(), Error> {
    let seen = book::check::check(&book::root())?;
    println!("the book holds: {seen}");
    Ok(())
}

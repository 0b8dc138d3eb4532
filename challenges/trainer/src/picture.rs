//! An image file as red, green and blue: PNG or JPEG, from wherever it came.
//!
//! A file is untrusted. What it says of its size is looked at before anything is decoded, so a few bytes that promise a
//! terabyte are an error and no allocation; a decoder has a bound on what it may take beside; and a JPEG that ends
//! before its end is refused, where its decoder would go on in grey.
//!
//! | file | here | in the original, `load_image` of the `transformers` library |
//! |---|---|---|
//! | a camera's orientation | turned | turned: `exif_transpose` |
//! | transparency | left out | left out: `convert("RGB")` |
//! | a palette, grey, 1 to 8 bits | expanded | expanded |
//! | 16 bits a colour | refused | cut or clipped, depending on the colours |
//! | CMYK | refused | converted without the profile that says what it means |
//! | cut off | refused | refused |
//!
//! The bytes of a PNG are the original's. Those of a JPEG differ by a few steps of 255 from decoder to decoder.

use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::path::Path;

use challenges::issues::vision::{Image, LARGEST_AREA, LONGEST_EDGE, Size};
use image::{ColorType, DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use reference::file_kind::FileKind;

/// The longest file that is read, in bytes.
const LONGEST_FILE: u64 = 256 << 20;

/// What a decoder may take, in bytes: the largest image with transparency, and as much again.
const DECODER_BYTES: u64 = 8 * LARGEST_AREA as u64;

/// Reads an image from a file.
///
/// Fails where it is no regular file, longer than 256 MiB, and as [`decode`] does.
pub fn read(path: &Path) -> Result<Image, String> {
    let described = fs::metadata(path).map_err(|error| error.to_string())?;
    if !described.is_file() {
        return Err("expected a regular file".into());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(LONGEST_FILE + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(format!("expected at most {LONGEST_FILE} bytes, found more"));
    }
    decode(&bytes).map_err(|error| match FileKind::of(&bytes) {
        Some(kind) => format!("expected a PNG or a JPEG image, found {kind}"),
        None => error,
    })
}

/// Decodes an image.
///
/// Fails where it is neither a PNG nor a JPEG, has an edge of 0 or above 2^24 pixels or an area above 2^26, 16 bits a
/// colour or four colours; and where it is damaged or ends before its end.
pub fn decode(bytes: &[u8]) -> Result<Image, String> {
    let reader =
        ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|error| error.to_string())?;
    match reader.format() {
        Some(ImageFormat::Png) => {}
        Some(ImageFormat::Jpeg) => check_jpeg(bytes)?,
        _ => return Err("expected a PNG or a JPEG image, found neither".into()),
    }
    let mut reader = reader;
    let mut limits = Limits::default();
    limits.max_alloc = Some(DECODER_BYTES);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|error| error.to_string())?;
    let (width, height) = decoder.dimensions();
    check_size(Size::new(height as usize, width as usize))?;
    let colours = decoder.color_type();
    if !matches!(colours, ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8) {
        return Err(format!("expected at most 8 bits a colour, found {}", 8 * bytes_of_colour(colours)));
    }
    let orientation = decoder.orientation().map_err(|error| error.to_string())?;
    let mut decoded = DynamicImage::from_decoder(decoder).map_err(|error| error.to_string())?;
    decoded.apply_orientation(orientation);
    let pixels = decoded.into_rgb8();
    let size = Size::new(pixels.height() as usize, pixels.width() as usize);
    Ok(Image::new(size, pixels.into_raw()))
}

fn bytes_of_colour(colours: ColorType) -> u8 {
    colours.bytes_per_pixel() / colours.channel_count()
}

/// That a size is one of an image that may be decoded.
fn check_size(size: Size) -> Result<(), String> {
    let edges = 1..=LONGEST_EDGE;
    if edges.contains(&size.height) && edges.contains(&size.width) && size.area() <= LARGEST_AREA {
        return Ok(());
    }
    Err(format!(
        "expected edges from 1 to {LONGEST_EDGE} pixels and an area of at most {LARGEST_AREA}, found {size}"
    ))
}

/// That a JPEG has one colour or three, and that its last scan ends. Source: ITU-T T.81, annex B.
fn check_jpeg(bytes: &[u8]) -> Result<(), String> {
    let cut = || "the file ends before the image does".to_owned();
    let mut at = 2; // after the start of the image
    loop {
        let marker = *bytes.get(at + 1).ok_or_else(cut)?;
        match (bytes[at], marker) {
            (0xff, 0xff) => at += 1, // filling
            (0xff, 0x01 | 0xd0..=0xd7) => at += 2,
            (0xff, 0xda) => break, // the first scan
            (0xff, 0xd9) => return Err(cut()),
            (0xff, _) => {
                let length = bytes.get(at + 2..at + 4).ok_or_else(cut)?;
                let is_frame = matches!(marker, 0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf);
                if is_frame {
                    check_colours(*bytes.get(at + 9).ok_or_else(cut)?)?;
                }
                at += 2 + usize::from(u16::from_be_bytes([length[0], length[1]])).max(2);
            }
            (other, _) => return Err(format!("damaged: expected a marker at byte {at}, found {other:#04x}")),
        }
    }
    let ends = bytes[at..].array_windows().any(|two| *two == [0xff, 0xd9]);
    if ends { Ok(()) } else { Err(cut()) }
}

fn check_colours(count: u8) -> Result<(), String> {
    match count {
        1 | 3 => Ok(()),
        4 => Err("expected grey, or red, green and blue, found CMYK".into()),
        other => Err(format!("expected 1 or 3 colours, found {other}")),
    }
}

//! An image file as red, green and blue: PNG or JPEG, from wherever it came.
//!
//! A file is untrusted. What it says of its size is looked at before anything is decoded, so a few bytes that promise a
//! terabyte are an error and no allocation; and a JPEG that ends before its end is refused, where its decoder would go
//! on in grey. The colour profile and the texts of a PNG, of which a few bytes can become gigabytes, are cut
//! out before the decoder sees them: nothing of them is used. So memory stays below three times the file, 16 bytes a
//! pixel and 16 MiB, and the pixels are at most 2^26.
//!
//! | file | here | in the original, `load_image` of the `transformers` library |
//! |---|---|---|
//! | a camera's orientation | turned | turned: `exif_transpose` |
//! | a colour profile | left out | left out |
//! | transparency | left out | left out: `convert("RGB")` |
//! | a palette, grey, 1 to 8 bits | expanded | expanded |
//! | 16 bits a colour | refused | cut or clipped, depending on the colours |
//! | CMYK | refused | converted without the profile that says what it means |
//! | cut off | refused | refused |
//!
//! The bytes of a PNG are the original's. Those of a JPEG differ by a few steps of 255 from decoder to decoder.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::path::Path;

use challenges::issues::vision::{Image, LARGEST_AREA, LONGEST_EDGE, Size};
use image::{ColorType, DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use reference::file_kind::FileKind;

/// The longest file that is read, in bytes.
const LONGEST_FILE: u64 = 256 << 20;

/// The bytes that a decoder may take for each pixel, and in addition.
const PIXEL_BYTES: u64 = 8;
const OTHER_BYTES: u64 = 16 << 20;

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
    let format = image::guess_format(bytes);
    let (format, bytes, size) = match format {
        Ok(ImageFormat::Png) => png(bytes).map(|(bytes, size)| (ImageFormat::Png, bytes, size))?,
        Ok(ImageFormat::Jpeg) => (ImageFormat::Jpeg, bytes.into(), jpeg(bytes)?),
        _ => return Err("expected a PNG or a JPEG image, found neither".into()),
    };
    check_size(size)?;
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::default();
    limits.max_alloc = Some(PIXEL_BYTES * size.area() as u64 + OTHER_BYTES);
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

/// Chunks of a PNG that are not used: a colour profile and texts, most of them compressed.
const UNUSED: [&[u8; 4]; 4] = [b"iCCP", b"tEXt", b"zTXt", b"iTXt"];

/// Bytes of a PNG before its first chunk, and of a chunk around its contents: length, name and checksum.
const PNG_BEGIN: usize = 8;
const AROUND: usize = 12;

/// A PNG without the chunks that are not used, and its size. Source: the PNG specification, third edition, section 5.
fn png(bytes: &[u8]) -> Result<(Cow<'_, [u8]>, Size), String> {
    let cut = || "the file ends before the image does".to_owned();
    let number = |at: usize| {
        let four: Option<[u8; 4]> = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
        four.map(|four| u32::from_be_bytes(four) as usize).ok_or_else(cut)
    };
    if bytes.get(PNG_BEGIN + 4..PNG_BEGIN + 8) != Some(b"IHDR") {
        return Err("damaged: expected the chunk IHDR first".into());
    }
    let size = Size::new(number(PNG_BEGIN + 12)?, number(PNG_BEGIN + 8)?);
    let (mut kept, mut begin, mut at) = (Vec::new(), 0, PNG_BEGIN); // what is before `begin` is copied
    while let Some(name) = bytes.get(at + 4..at + 8) {
        let end = at.saturating_add(AROUND).saturating_add(number(at)?).min(bytes.len());
        if UNUSED.iter().any(|unused| name == *unused) {
            kept.extend(&bytes[begin..at]);
            begin = end;
        }
        at = end;
        if name == b"IEND" {
            break;
        }
    }
    if begin == 0 {
        return Ok((bytes.into(), size));
    }
    kept.extend(&bytes[begin..]);
    Ok((kept.into(), size))
}

/// The size of a JPEG, which has one colour or three, and whose last scan ends. Source: ITU-T T.81, annex B.
fn jpeg(bytes: &[u8]) -> Result<Size, String> {
    let cut = || "the file ends before the image does".to_owned();
    let mut size = None;
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
                    let edge = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
                    size = Some(Size::new(edge(at + 5), edge(at + 7)));
                }
                at += 2 + usize::from(u16::from_be_bytes([length[0], length[1]])).max(2);
            }
            (other, _) => return Err(format!("damaged: expected a marker at byte {at}, found {other:#04x}")),
        }
    }
    let ends = bytes[at..].array_windows().any(|two| *two == [0xff, 0xd9]);
    match size {
        _ if !ends => Err(cut()),
        None => Err("damaged: expected a frame before the first scan".into()),
        Some(size) => Ok(size),
    }
}

fn check_colours(count: u8) -> Result<(), String> {
    match count {
        1 | 3 => Ok(()),
        4 => Err("expected grey, or red, green and blue, found CMYK".into()),
        other => Err(format!("expected 1 or 3 colours, found {other}")),
    }
}

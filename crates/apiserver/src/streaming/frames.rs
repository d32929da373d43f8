//! SPDY/3.1 frames: those that Kubernetes' streams use.
//!
//! Source: the SPDY draft 3.1 of the Chromium project, sections 2.2 and 2.6; moby/spdystream `spdy/`.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use tokio_util::codec::{Decoder, Encoder};

/// What both sides' compression of headers begins with. Source: draft 3.1, section 2.6.10.1.
const DICTIONARY: &[u8] = include_bytes!("dictionary.bin");
/// Bytes of a frame. Clients copy in pieces of 32 KiB.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// Bytes of a block of headers.
const HEADERS_BYTES_MAX: usize = 16 << 10;
/// Headers of a block.
const HEADERS_MAX: usize = 64;
/// Why a stream is not taken. Source: draft 3.1, section 2.6.3.
pub(super) const REFUSED_STREAM: u32 = 3;
const HEAD_BYTES: usize = 8;
const VERSION: u16 = 0x8003;
const FIN: u8 = 1;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// A frame, in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A stream begins.
    Open { stream: u32, headers: Vec<(String, String)>, fin: bool },
    /// A stream was accepted.
    Reply { stream: u32 },
    /// Bytes of a stream. `fin`: the last of this direction.
    Data { stream: u32, bytes: Bytes, fin: bool },
    /// A stream is given up, for a reason of the draft's section 2.6.3.
    Reset { stream: u32, reason: u32 },
    /// Asks whether the other side is alive, which answers with the same.
    Ping(u32),
    /// The other side opens no more streams.
    GoAway,
    /// One that means nothing here.
    Other,
}

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// A frame is larger than any client sends.
    #[error("a frame of {0} bytes is too large")]
    TooLarge(usize),
    /// A frame is not what the draft says.
    #[error("a frame is malformed: {0}")]
    Malformed(&'static str),
    /// A block of headers cannot be unpacked.
    #[error("a block of headers cannot be decompressed: {0}")]
    Decompress(#[from] flate2::DecompressError),
    /// A block of headers cannot be packed.
    #[error("a block of headers cannot be compressed: {0}")]
    Compress(#[from] flate2::CompressError),
    /// The connection is lost.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Reads and writes frames. Headers are compressed as one stream in each direction.
pub(super) struct Frames {
    inflate: Decompress,
    deflate: Compress,
    /// Whether the compressor has its dictionary.
    ready: bool,
}

impl Frames {
    pub(super) fn new() -> Self {
        let (inflate, deflate) = (Decompress::new(true), Compress::new(Compression::fast(), true));
        Self { inflate, deflate, ready: false }
    }

    fn unpacked(&mut self, mut packed: &[u8]) -> Result<Vec<u8>, FrameError> {
        let mut out = Vec::with_capacity(1024);
        loop {
            let (before, length) = (self.inflate.total_in(), out.len());
            let done = self.inflate.decompress_vec(packed, &mut out, FlushDecompress::Sync);
            let taken = usize::try_from(self.inflate.total_in() - before).unwrap_or(usize::MAX);
            packed = packed.get(taken..).unwrap_or_default();
            match done {
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.inflate.set_dictionary(DICTIONARY)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if out.len() > HEADERS_BYTES_MAX {
                return Err(FrameError::TooLarge(out.len()));
            }
            if out.len() < out.capacity() && packed.is_empty() {
                return Ok(out);
            }
            if out.len() == length && taken == 0 && out.len() < out.capacity() {
                return Err(FrameError::Malformed("headers"));
            }
            out.reserve(1024);
        }
    }

    fn packed(&mut self, plain: &[u8]) -> Result<Vec<u8>, FrameError> {
        if !self.ready {
            self.deflate.set_dictionary(DICTIONARY)?;
            self.ready = true;
        }
        let mut out = Vec::with_capacity(plain.len() + 256);
        self.deflate.compress_vec(plain, &mut out, FlushCompress::Sync)?;
        Ok(out)
    }

    fn control(&mut self, kind: u16, flags: u8, mut body: BytesMut) -> Result<Frame, FrameError> {
        let short = FrameError::Malformed("a control frame ends early");
        match kind {
            SYN_STREAM => {
                let Ok(stream) = body.try_get_u32() else { return Err(short) };
                // The stream that it belongs to, its priority, and a slot of credentials.
                if body.remaining() < 6 {
                    return Err(short);
                }
                body.advance(6);
                let headers = headers(&self.unpacked(&body)?)?;
                Ok(Frame::Open { stream: stream & 0x7fff_ffff, headers, fin: flags & FIN != 0 })
            }
            SYN_REPLY | HEADERS => {
                let Ok(stream) = body.try_get_u32() else { return Err(short) };
                // What is compressed has to be read, whoever it is for: the next block goes on from it.
                headers(&self.unpacked(&body)?)?;
                Ok(if kind == SYN_REPLY { Frame::Reply { stream: stream & 0x7fff_ffff } } else { Frame::Other })
            }
            RST_STREAM => match (body.try_get_u32(), body.try_get_u32()) {
                (Ok(stream), Ok(reason)) => Ok(Frame::Reset { stream: stream & 0x7fff_ffff, reason }),
                _ => Err(short),
            },
            PING => body.try_get_u32().map(Frame::Ping).map_err(|_| short),
            GOAWAY => Ok(Frame::GoAway),
            _ => Ok(Frame::Other),
        }
    }
}

/// Names and values. Names are lower case; a value of several is the first.
fn headers(mut block: &[u8]) -> Result<Vec<(String, String)>, FrameError> {
    const MALFORMED: FrameError = FrameError::Malformed("headers");
    let count = block.try_get_u32().map_err(|_| MALFORMED)? as usize;
    if count > HEADERS_MAX {
        return Err(FrameError::TooLarge(count));
    }
    let mut text = || {
        let length = block.try_get_u32().map_err(|_| MALFORMED)? as usize;
        let (text, rest) = block.split_at_checked(length).ok_or(MALFORMED)?;
        block = rest;
        Ok::<_, FrameError>(String::from_utf8_lossy(text).into_owned())
    };
    (0..count).map(|_| Ok((text()?.to_ascii_lowercase(), text()?))).collect()
}

impl Decoder for Frames {
    type Item = Frame;
    type Error = FrameError;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let Some(mut head) = bytes.get(..HEAD_BYTES) else { return Ok(None) };
        let first = head.get_u32();
        let word = head.get_u32();
        let (flags, length) = ((word >> 24) as u8, (word & 0x00ff_ffff) as usize);
        if length > FRAME_BYTES_MAX {
            return Err(FrameError::TooLarge(length));
        }
        if bytes.len() < HEAD_BYTES + length {
            bytes.reserve(HEAD_BYTES + length - bytes.len());
            return Ok(None);
        }
        bytes.advance(HEAD_BYTES);
        let body = bytes.split_to(length);
        if first & 0x8000_0000 == 0 {
            return Ok(Some(Frame::Data { stream: first, bytes: body.freeze(), fin: flags & FIN != 0 }));
        }
        let (version, kind) = ((first >> 16) as u16, (first & 0xffff) as u16);
        if version != VERSION {
            return Err(FrameError::Malformed("it is not of SPDY/3"));
        }
        self.control(kind, flags, body).map(Some)
    }
}

impl Encoder<Frame> for Frames {
    type Error = FrameError;

    fn encode(&mut self, frame: Frame, out: &mut BytesMut) -> Result<(), FrameError> {
        let control = |out: &mut BytesMut, kind: u16, flags: u8, body: &[u8]| {
            out.put_u16(VERSION);
            out.put_u16(kind);
            out.put_u32((u32::from(flags) << 24) | body.len() as u32);
            out.put_slice(body);
        };
        let two = |first: u32, second: u32| [first.to_be_bytes(), second.to_be_bytes()].concat();
        match frame {
            Frame::Open { stream, headers, fin } => {
                let mut block = (headers.len() as u32).to_be_bytes().to_vec();
                for text in headers.iter().flat_map(|(name, value)| [name, value]) {
                    block.put_u32(text.len() as u32);
                    block.put_slice(text.as_bytes());
                }
                let body = [two(stream, 0), vec![0, 0], self.packed(&block)?].concat();
                control(out, SYN_STREAM, u8::from(fin), &body);
            }
            Frame::Reply { stream } => {
                let body = [stream.to_be_bytes().to_vec(), self.packed(&0_u32.to_be_bytes())?].concat();
                control(out, SYN_REPLY, 0, &body);
            }
            Frame::Data { stream, bytes, fin } => {
                out.put_u32(stream);
                out.put_u32((u32::from(u8::from(fin)) << 24) | bytes.len() as u32);
                out.put_slice(&bytes);
            }
            Frame::Reset { stream, reason } => control(out, RST_STREAM, 0, &two(stream, reason)),
            Frame::Ping(id) => control(out, PING, 0, &id.to_be_bytes()),
            Frame::GoAway => control(out, GOAWAY, 0, &two(0, 0)),
            Frame::Other => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(stream: u32, kind: &str) -> Frame {
        let headers = vec![("streamtype".to_owned(), kind.to_owned()), ("port".to_owned(), "8080".to_owned())];
        Frame::Open { stream, headers, fin: false }
    }

    #[test]
    fn frames_are_read_as_they_were_written_in_whatever_pieces_they_come() {
        let data = Frame::Data { stream: 3, bytes: Bytes::from_static(b"hello"), fin: true };
        let reset = Frame::Reset { stream: 5, reason: 3 };
        let frames = [open(1, "error"), open(3, "data"), Frame::Reply { stream: 1 }, data, reset, Frame::Ping(7)];
        let (mut writer, mut sent) = (Frames::new(), BytesMut::new());
        frames.iter().for_each(|frame| writer.encode(frame.clone(), &mut sent).unwrap());
        for size in [1, 7, sent.len()] {
            let (mut reader, mut held, mut read) = (Frames::new(), BytesMut::new(), Vec::new());
            for piece in sent.chunks(size) {
                held.extend_from_slice(piece);
                while let Some(frame) = reader.decode(&mut held).unwrap() {
                    read.push(frame);
                }
            }
            assert_eq!(read, frames);
        }
    }

    #[test]
    fn what_no_client_sends_is_refused() {
        let refused = |bytes: &[u8]| Frames::new().decode(&mut BytesMut::from(bytes)).unwrap_err().to_string();
        assert!(refused(&[0, 0, 0, 1, 0, 0xff, 0xff, 0xff]).contains("too large"));
        assert!(refused(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1]).contains("not of SPDY/3"));
        assert!(refused(&[0x80, 3, 0, 6, 0, 0, 0, 1, 0]).contains("ends early"));
        assert!(refused(&[0x80, 3, 0, 1, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 9, 9]).contains("decompress"));
        // A few bytes that unpack to very many.
        let block = vec![0; HEADERS_BYTES_MAX * 64];
        let mut packer = Frames::new();
        let mut packed = Vec::with_capacity(block.len());
        packer.deflate.set_dictionary(DICTIONARY).unwrap();
        packer.deflate.compress_vec(&block, &mut packed, FlushCompress::Sync).unwrap();
        let length = (packed.len() as u32 + 10).to_be_bytes();
        let bomb = [&[0x80, 3, 0, 1][..], &length, &[0; 10], &packed].concat();
        assert!(bomb.len() < 16 << 10 && refused(&bomb).contains("too large"));
    }
}

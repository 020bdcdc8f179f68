//! HTTP/2 by hand, as far as one gRPC call needs it: what the kubelet's client puts on the wire cannot be said
//! through a Rust client, which would refuse the authority before it sends it.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `grpc-status` in HPACK's Huffman code, with its length.
const GRPC_STATUS: &[u8] = &[0x88, 0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];

/// What came back.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The message, without its gRPC head.
    pub(crate) message: Vec<u8>,
    /// `grpc-status`, where one came.
    pub(crate) grpc_status: Option<u8>,
    /// The error code of RST_STREAM or GOAWAY.
    pub(crate) reset: Option<u32>,
    /// How long it took.
    pub(crate) took: Duration,
}

/// Calls a gRPC method with an empty message.
pub(crate) fn call(socket: &Path, authority: Option<&str>, method: &str) -> Answer {
    let begun = Instant::now();
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut request = PREFACE.to_vec();
    request.extend(frame(SETTINGS, 0, 0, &[]));
    request.extend(frame(HEADERS, END_HEADERS, 1, &headers(authority, method)));
    request.extend(frame(DATA, END_STREAM, 1, &[0; 5]));
    stream.write_all(&request).unwrap();

    let mut answer = Answer::default();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).expect("the server closed the connection or was silent for 5 s");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let (kind, flags) = (head[3], head[4]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).unwrap();
        match kind {
            SETTINGS if flags == 0 => stream.write_all(&frame(SETTINGS, 1, 0, &[])).unwrap(),
            DATA => answer.message.extend(payload.get(5..).unwrap_or_default()),
            HEADERS => answer.grpc_status = answer.grpc_status.or(grpc_status(&payload)),
            RST_STREAM => answer.reset = Some(u32::from_be_bytes(payload[..4].try_into().unwrap())),
            GOAWAY => answer.reset = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap())),
            _ => {}
        }
        let ended = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        if ended || answer.reset.is_some() {
            answer.took = begun.elapsed();
            return answer;
        }
    }
}

/// How grpc-go makes an authority of what it was told to dial: everything but these characters is escaped.
pub(crate) fn grpc_go_authority(path: &Path) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]@".contains(&b);
    let bytes = path.to_str().unwrap().bytes();
    bytes.map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Headers in the order of grpc-go; literals are neither indexed nor Huffman-coded.
fn headers(authority: Option<&str>, method: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04];
    block.extend(string(method));
    if let Some(authority) = authority {
        block.push(0x01);
        block.extend(string(authority));
    }
    block.extend([0x0f, 0x10]);
    block.extend(string("application/grpc"));
    block.push(0x00);
    block.extend(string("te"));
    block.extend(string("trailers"));
    block
}

fn string(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    match u8::try_from(text.len()).unwrap() {
        length @ ..127 => bytes.push(length),
        length @ 127.. if length - 127 < 128 => bytes.extend([127, length - 127]),
        _ => panic!("{text:?} is too long for this encoder"),
    }
    bytes.extend(text.bytes());
    bytes
}

fn grpc_status(block: &[u8]) -> Option<u8> {
    let at = block.windows(GRPC_STATUS.len()).position(|window| window == GRPC_STATUS)? + GRPC_STATUS.len();
    match block[at..] {
        // Huffman-coded digits 0 to 2 have five bits, filled up with ones.
        [0x81, digit, ..] if digit & 7 == 7 && digit >> 3 <= 2 => Some(digit >> 3),
        [0x01, digit, ..] => Some(digit - b'0'),
        _ => panic!("grpc-status is coded in a way that this decoder does not know: {:x?}", &block[at..]),
    }
}

//! A session before its login, in either protocol, its bytes cut at random: nothing is executed unless the input has the
//! password, no more than a login is kept, and the replies do not depend on the cuts.

#![no_main]

use std::sync::OnceLock;

use glasscache_protocol::login;
use glasscache_server::{Config, InMemorySession, UsersFile, UsersFileFormat, pieces};
use libfuzzer_sys::fuzz_target;

/// The longest unfinished login: a line and a value, or a packet.
const PENDING_MAX: usize = 1100;

/// Long enough that no mutation finds it.
const PASSWORD: &str = "correct horse battery staple 5f0c1d7a9b3e";

fn server() -> InMemorySession {
    static FILE: OnceLock<std::path::PathBuf> = OnceLock::new();
    let path = FILE.get_or_init(|| {
        let path =
            std::env::temp_dir().join(format!("glasscache-fuzz-users-{}", std::process::id()));
        std::fs::write(&path, format!("user:{PASSWORD}\n")).expect("a file of users");
        path
    });
    InMemorySession::new(Config {
        hash_seed: Some(1),
        memory_bytes: 4 << 20,
        users: Some(UsersFile { path: path.clone(), format: UsersFileFormat::AuthFile }),
        ..Config::default()
    })
    .expect("memory for a small store")
}

fuzz_target!(|input: &[u8]| {
    let _ = login::parse_sasl_plain(input);
    let Some((lengths, stream)) = input.split_first_chunk::<4>() else { return };
    let (mut whole, mut cut) = (server(), server());
    let expected = whole.feed(stream, 10);
    let refused = [&b"CLIENT_ERROR"[..], b"\x81"];
    assert!(expected.is_empty() || refused.iter().any(|start| expected.starts_with(start)));
    for done in [&b"STORED"[..], b"END\r\n", b"VALUE", b"Authenticated"] {
        assert!(!expected.windows(done.len()).any(|part| part == done));
    }
    assert!(whole.pending_bytes() <= PENDING_MAX);
    let mut received = Vec::new();
    for piece in pieces(stream, lengths) {
        received.extend(cut.feed(piece, 10));
        assert!(cut.pending_bytes() <= PENDING_MAX);
    }
    assert_eq!(whole.is_closed(), cut.is_closed());
    assert_eq!(received, expected);
});

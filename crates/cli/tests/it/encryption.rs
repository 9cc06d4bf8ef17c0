//! Servers that encrypt and require a login: `bench`, `profile` and `warm` against ours and against a memcached with
//! TLS, and the priority of our threads that do the work before a login.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use glasscache_peers::Authority;
use serde_json::Value;
use tempfile::TempDir;

use crate::server::{Server, glasscache, strip_time_and_level};

/// Environment variable with a real memcached, where the tests have one.
const ORACLE_VARIABLE: &str = "GLASSCACHE_TEST_ORACLE";

/// An authority, the certificate of a server, and the file with its users.
pub(crate) struct Files {
    folder: TempDir,
    pub(crate) authority: Authority,
}

impl Files {
    pub(crate) fn new() -> Files {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "ca");
        authority.sign("server", 2099);
        fs::write(folder.path().join("users"), "app:secret word\n").unwrap();
        Files { folder, authority }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The flags of a server that encrypts.
    fn tls_flags(&self) -> [String; 3] {
        let (chain, key) = (self.path("server.crt"), self.path("server.key"));
        let certificate_options =
            format!("ssl_chain_cert={},ssl_key={}", chain.display(), key.display());
        ["-Z".to_owned(), "-o".to_owned(), certificate_options]
    }

    /// A server of ours that encrypts and requires a login.
    fn serve(&self) -> Server {
        let [enable, option, certificate_options] = self.tls_flags();
        let users = self.path("users").display().to_string();
        Server::start(&[&enable, &option, &certificate_options, "-Y", &users])
    }

    /// A server of ours that encrypts and requires a login in both protocols.
    fn serve_with_sasl(&self) -> Server {
        let [enable, option, certificate_options] = self.tls_flags();
        let users = self.path("users").display().to_string();
        Server::start(&[&enable, &option, &certificate_options, "-S", "-Y", &users])
    }

    /// The flags of a command that trusts the authority, for a server that is reached by its number.
    fn trust(&self, command: &mut Command) {
        command.arg("--tls").arg("--tls-ca").arg(self.path("ca.pem"));
        command.args(["--tls-name", "localhost"]);
    }
}

fn add_login(command: &mut Command) {
    command.args(["--user", "app"]);
    command.env("GLASSCACHE_PASSWORD", "secret word");
}

/// The result of a command that succeeds.
fn parse_result(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["result"].clone()
}

/// The sentence of a command that fails with this exit code.
fn read_failure(output: &Output, expected_code: i32) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(expected_code), "{stderr}");
    stderr
}

fn new_bench(target: &str, arguments: &[&str], window: &str) -> Command {
    let mut command = glasscache();
    command.args(["bench", target, "--for", window, "--warm-up", "100ms"]);
    command.args(["--keys", "200", "--connections", "4"]);
    command.args(arguments);
    command
}

/// A `bench` that fails before it measures.
fn new_refused_bench(target: &str, arguments: &[&str]) -> Command {
    new_bench(target, arguments, "300ms")
}

/// The first result that `is_complete` accepts, of windows that double: on a busy machine a short one can pass
/// without a reply.
fn measure_until(
    new_command: impl Fn(&str) -> Command,
    is_complete: impl Fn(&Value) -> bool,
) -> Value {
    for milliseconds in (0..8).map(|doublings| 300 << doublings) {
        let result = parse_result(&new_command(&format!("{milliseconds}ms")).output().unwrap());
        if is_complete(&result) {
            return result;
        }
    }
    panic!("no window had what was measured for");
}

/// Everything that the generator sends and reads in text and meta, in records of every size.
fn assert_load_is_correct(server: &Server, files: &Files, logs_in: bool) {
    assert_load_in_protocol_is_correct(server, files, logs_in, "text");
    assert_load_in_protocol_is_correct(server, files, logs_in, "meta");
}

fn assert_load_in_protocol_is_correct(
    server: &Server,
    files: &Files,
    logs_in: bool,
    protocol: &str,
) {
    for arguments in [
        &["--depth", "16"][..],
        // Values of several records, more than a socket takes at once.
        &["--depth", "4", "--size", "300000", "--keys", "20"],
        &["--rate", "500", "--size", "20000"],
    ] {
        let new_command = |window: &str| {
            let mut command = glasscache();
            command.args(["bench", &server.address(), "--for", window, "--json"]);
            command.args(["--warm-up", "100ms", "--connections", "4"]);
            command.args(["--protocol", protocol]);
            command.args(["--mix", "get=6,multi-get=1,set=2,delete=1", "--fill"]);
            command.args(arguments);
            if !arguments.contains(&"--keys") {
                command.args(["--keys", "200"]);
            }
            files.trust(&mut command);
            if logs_in {
                add_login(&mut command);
            }
            command
        };
        let result = measure_until(new_command, |result| {
            assert_eq!(result["wrong_values"], 0, "{arguments:?}");
            result["hits"].as_u64() > Some(0) && result["stored"].as_u64() > Some(0)
        });
        assert_eq!(result["settings"]["tls"], true);
    }
}

#[test]
fn bench_over_tls_with_a_login_reads_every_value() {
    let files = Files::new();
    assert_load_is_correct(&files.serve(), &files, true);
}

#[test]
fn bench_in_binary_over_tls_with_a_login_by_sasl_reads_every_value() {
    let files = Files::new();
    let server = files.serve_with_sasl();
    assert_load_in_protocol_is_correct(&server, &files, true, "binary");
}

#[test]
fn bench_reads_every_value_of_a_memcached_with_a_login_by_sasl() {
    let Some(path) = std::env::var_os(ORACLE_VARIABLE).filter(has_password_file) else {
        return;
    };
    let files = Files::new();
    fs::write(files.path("memcached.conf"), "mech_list: plain\n").unwrap();
    // A user without a realm would get the name of the machine.
    let user = "app@example";
    fs::write(files.path("users"), format!("{user}:secret word\n")).unwrap();
    let mut command = Command::new(&path);
    command.args(["-p", "-1", "-U", "0", "-l", "127.0.0.1", "-u", "root", "-S"]);
    command.env("MEMCACHED_SASL_PWDB", files.path("users"));
    command.env("SASL_CONF_PATH", files.folder.path());
    let server = Server::run(command);
    for new_command in [new_bench, new_profile] {
        let arguments = ["--protocol", "binary", "--json"];
        // Without a login it is refused, by a server that reports its version before.
        let mut refused_command = new_command(&server.address(), &arguments, "300ms");
        let text = read_failure(&refused_command.output().unwrap(), 3);
        assert!(text.contains("wants a login before"), "{text}");
        let mut command = new_command(&server.address(), &arguments, "300ms");
        command.current_dir(files.folder.path());
        command.args(["--user", user]).env("GLASSCACHE_PASSWORD", "secret word");
        assert_eq!(parse_result(&command.output().unwrap())["wrong_values"], 0);
    }
}

#[test]
fn bench_over_tls_reads_every_value_of_a_memcached_that_has_tls() {
    let Some(path) = std::env::var_os(ORACLE_VARIABLE).filter(has_tls) else {
        return;
    };
    let files = Files::new();
    let flags = files.tls_flags();
    let server = Server::memcached_with(&path, &flags.each_ref().map(String::as_str));
    assert_load_is_correct(&server, &files, false);
    assert_load_in_protocol_is_correct(&server, &files, false, "binary");
}

/// Whether it can read its users from a file of `user:password` lines.
fn has_password_file(memcached: &OsString) -> bool {
    let variable = b"MEMCACHED_SASL_PWDB";
    let program = fs::read(memcached).unwrap_or_default();
    program.windows(variable.len()).any(|bytes| bytes == variable)
}

fn has_tls(memcached: &OsString) -> bool {
    let help = Command::new(memcached).arg("-h").output().unwrap().stdout;
    String::from_utf8_lossy(&help).contains("--enable-ssl")
}

#[test]
fn a_login_by_sasl_that_is_missing_or_wrong_is_named_with_the_reason() {
    let files = Files::new();
    let server = files.serve_with_sasl();
    let new_command = || {
        let mut command = new_refused_bench(&server.address(), &["--protocol", "binary"]);
        files.trust(&mut command);
        command
    };
    let text = read_failure(&new_command().output().unwrap(), 3);
    assert!(text.contains("wants a login before other commands"), "{text}");
    let mut command = new_command();
    command.args(["--user", "app"]).env("GLASSCACHE_PASSWORD", "wrong");
    let text = read_failure(&command.output().unwrap(), 3);
    assert!(text.contains("the login was refused: Auth failure."), "{text}");
}

#[test]
fn two_encrypted_targets_have_a_ratio_of_cpu() {
    let files = Files::new();
    let (first, second) = (files.serve(), files.serve());
    let (first_address, second_address) = (first.address(), second.address());
    let new_command = |window: &str| {
        let mut command = new_bench(&first_address, &["--vs", &second_address, "--json"], window);
        files.trust(&mut command);
        add_login(&mut command);
        command
    };
    // CPU time is counted in hundredths of a second, of which a short window can have none.
    measure_until(new_command, |result| {
        result["ratio"]["server_cpu_us"]["value"].as_f64() > Some(0.0)
    });
}

#[test]
fn a_server_that_is_not_trusted_or_refuses_the_login_is_named_with_the_reason() {
    let files = Files::new();
    let server = files.serve();
    let target = server.address();
    // Without TLS, where the server encrypts.
    let text = read_failure(&new_refused_bench(&target, &[]).output().unwrap(), 4);
    assert!(text.contains("needs --tls"), "{text}");
    let binary_output = new_refused_bench(&target, &["--protocol", "binary"]).output();
    let text = read_failure(&binary_output.unwrap(), 4);
    assert!(text.contains("needs --tls"), "{text}");
    for protocol in ["text", "meta", "binary"] {
        let mut command = new_refused_bench(&target, &["--protocol", protocol]);
        add_login(&mut command);
        let text = read_failure(&command.output().unwrap(), 4);
        assert!(text.contains("expects TLS") && text.contains("needs --tls"), "{protocol}: {text}");
    }
    // The authority is not one of the system's.
    let other_files = Files::new();
    let mut command = new_refused_bench(&target, &[]);
    other_files.trust(&mut command);
    let text = read_failure(&command.output().unwrap(), 3);
    assert!(text.contains("the TLS handshake failed: invalid peer certificate"), "{text}");
    assert!(text.contains("--tls-ca FILE names the authority"), "{text}");
    assert!(!text.contains("without a target"), "{text}");
    // The certificate has another name.
    let mut command = new_refused_bench(&target, &["--tls", "--tls-ca"]);
    command.arg(files.path("ca.pem"));
    let text = read_failure(&command.output().unwrap(), 3);
    assert!(text.contains("certificate not valid for name"), "{text}");
    // No login, and a wrong one.
    let mut command = new_refused_bench(&target, &[]);
    files.trust(&mut command);
    let text = read_failure(&command.output().unwrap(), 3);
    assert!(text.contains("wants a login before other commands"), "{text}");
    let mut command = new_refused_bench(&target, &["--user", "app"]);
    command.env("GLASSCACHE_PASSWORD", "wrong");
    files.trust(&mut command);
    let text = read_failure(&command.output().unwrap(), 3);
    assert!(text.contains("the login was refused: CLIENT_ERROR"), "{text}");
    // TLS, where the server does not encrypt.
    let plain_server = Server::start(&[]);
    let mut command = new_refused_bench(&plain_server.address(), &[]);
    files.trust(&mut command);
    let text = read_failure(&command.output().unwrap(), 3);
    let reason = "the TLS handshake failed: the server does not encrypt";
    assert!(text.contains(reason), "{text}");
    assert!(!text.contains("without a target"), "{text}");
}

#[test]
fn options_of_an_encrypted_server_without_one_are_refused() {
    for arguments in [
        &["bench", "--closed", "--tls"][..],
        &["bench", "--tls"],
        &["bench", "--closed", "--user", "a", "--password", "b"],
        &["profile", "--tls"],
        &["profile", "--user", "a", "--password", "b"],
        &["bench", "127.0.0.1:1", "--user", "a"],
        &["bench", "127.0.0.1:1", "--user", "a b", "--password", "c"],
        &["bench", "unix:/nowhere", "--tls", "--tls-ca", "/dev/null"],
        &["profile", "127.0.0.1:1", "--tls", "--via", "pylibmc"],
        &["bench", "--protocol", "binary"],
        &["warm", "--from", "a:1", "--to", "b:1", "--tls-only", "to"],
    ] {
        let output = glasscache().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

fn new_profile(target: &str, arguments: &[&str], _window: &str) -> Command {
    let mut command = glasscache();
    command.args(["profile", target, "--calls", "100"]);
    command.args(["--sizes", "1,100000", "--widths", "1,10"]);
    command.args(arguments);
    command
}

#[test]
fn profile_in_binary_over_tls_with_a_login_by_sasl_reads_every_value() {
    let files = Files::new();
    let (first, second) = (files.serve_with_sasl(), files.serve_with_sasl());
    let arguments = ["--protocol", "binary", "--json", "--vs", &second.address()];
    let mut command = new_profile(&first.address(), &arguments, "");
    command.current_dir(files.folder.path());
    files.trust(&mut command);
    add_login(&mut command);
    let result = parse_result(&command.output().unwrap());
    assert_eq!(result["wrong_values"], 0);
    assert_eq!((&result["protocol"], &result["tls"]), (&"binary".into(), &true.into()));
    assert!(result["by_size"][1]["samples"].as_u64() >= Some(100));
    assert!(result["ratio"]["50"]["value"].as_f64() > Some(0.0));
}

#[test]
fn profile_verifies_the_name_that_the_address_has() {
    let files = Files::new();
    let server = files.serve();
    let by_name = format!("localhost:{}", server.port());
    let mut command = new_profile(&by_name, &["--json", "--tls", "--tls-ca"], "");
    command.current_dir(files.folder.path());
    command.arg(files.path("ca.pem"));
    add_login(&mut command);
    let result = parse_result(&command.output().unwrap());
    assert_eq!((&result["wrong_values"], &result["tls"]), (&0.into(), &true.into()));
    assert!(result["by_size"][1]["samples"].as_u64() >= Some(100));
}

/// Copies between two servers, both of which encrypt and want a login, or the one that `encrypted_side` names alone.
fn run_warm(files: &Files, from: &Server, to: &Server, encrypted_side: Option<&str>) -> Value {
    let mut command = glasscache();
    command.args(["warm", "--json", "--from", &from.address()]);
    command.args(["--to", &to.address()]);
    files.trust(&mut command);
    add_login(&mut command);
    if let Some(side) = encrypted_side {
        command.args(["--tls-only", side, "--login-only", side]);
    }
    parse_result(&command.output().unwrap())
}

#[test]
fn warm_copies_to_from_and_between_servers_that_encrypt_and_want_a_login() {
    let files = Files::new();
    let (first, last) = (Server::start(&[]), Server::start(&[]));
    let (second, third) = (files.serve(), files.serve());
    let (mut connection, large) = (first.connect(), "x".repeat(300_000));
    for number in 0..1000 {
        let request = format!("set many:{number} {number} 0 1\r\n7\r\n");
        assert_eq!(connection.request(&request), "STORED");
    }
    let request = format!("set large 0 0 {}\r\n{large}\r\n", large.len());
    assert_eq!(connection.request(&request), "STORED");
    for (from, to, encrypted_side) in
        [(&first, &second, Some("to")), (&second, &third, None), (&third, &last, Some("from"))]
    {
        assert_eq!(run_warm(&files, from, to, encrypted_side)["copied_items"], 1001);
    }
    let mut connection = last.connect();
    assert_eq!(connection.request("mg many:77 v f\r\n"), "VA 1 f77");
    assert_eq!(connection.read_line(), "7");
    assert_eq!(connection.request("mg large v\r\n"), "VA 300000");
    assert_eq!(connection.read_line(), large);
}

/// A hello of TLS 1.1, as a client sends it that has nothing newer.
fn build_old_hello() -> Vec<u8> {
    let mut hello = vec![0x03, 0x02];
    hello.extend([7; 32]);
    // No session, one cipher suite, no compression.
    hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
    let mut record = vec![0x16, 0x03, 0x01, 0, hello.len() as u8 + 4];
    record.extend([1, 0, 0, hello.len() as u8]);
    record.extend(hello);
    record
}

#[test]
fn each_handshake_that_fails_is_logged_with_its_reason() {
    let files = Files::new();
    Authority::new(files.folder.path(), "clients").sign("expired", 2020);
    Authority::new(files.folder.path(), "others").sign("foreign", 2099);
    let [enable, option, certificate_options] = files.tls_flags();
    let authority_path = files.path("clients.pem");
    let options =
        format!("{certificate_options},ssl_verify_mode=2,ssl_ca_cert={}", authority_path.display());
    let mut command = glasscache();
    command.args(["serve", "-p", "-1", "-u", "root", "-v"]);
    command.args([&enable, &option, &options]);
    let mut server = Server::run_with_stderr(command, Stdio::piped());
    let mut log = BufReader::new(server.take_stderr()).lines();
    let mut read_next_reason = || {
        let mut lines = log.by_ref().map(Result::unwrap);
        let line = lines.find(|line| line.contains("TLS handshake")).unwrap();
        let text = strip_time_and_level(&line);
        assert!(text.starts_with("glasscache: closed 127.0.0.1:"), "{line}");
        let (_, reason) = line.split_once("its TLS handshake failed: ").unwrap();
        reason.to_owned()
    };
    for (client, expected) in [
        (None, "peer sent no certificates"),
        (Some("expired"), "invalid peer certificate: certificate expired"),
        (Some("foreign"), "invalid peer certificate: UnknownIssuer"),
    ] {
        let mut command = new_refused_bench(&server.address(), &[]);
        files.trust(&mut command);
        if let Some(name) = client {
            command.arg("--tls-cert").arg(files.path(&format!("{name}.crt")));
            command.arg("--tls-key").arg(files.path(&format!("{name}.key")));
        }
        assert!(!command.output().unwrap().status.success(), "{client:?}");
        let reason = read_next_reason();
        assert!(reason.starts_with(expected), "{client:?}: {reason}");
    }
    let hello = build_old_hello();
    for (sent, expected) in [
        (&hello[..], "peer is incompatible: "),
        (&hello[..20], "the client closed the connection"),
        (b"get key\r\n", "received corrupt message"),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.write_all(sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let reason = read_next_reason();
        assert!(reason.starts_with(expected), "{sent:?}: {reason}");
    }
}

/// The rows of `stats settings` about TLS.
fn request_tls_settings(server: &Server) -> Vec<String> {
    let mut connection = server.connect();
    connection.send(b"stats settings\r\n");
    let text = String::from_utf8(connection.read_through(b"END\r\n")).unwrap();
    let rows = text.lines().filter(|row| row.starts_with("STAT ssl_"));
    rows.map(str::to_owned).collect()
}

#[test]
fn settings_of_tls_are_printed_as_memcached_prints_them() {
    let files = Files::new();
    let [enable, option, certificate_options] = files.tls_flags();
    let oracle = std::env::var_os(ORACLE_VARIABLE).filter(has_tls);
    for (tls_option, expected_row) in [
        ("ssl_verify_mode=0", "ssl_verify_mode 0"),
        ("ssl_verify_mode=1", "ssl_verify_mode 1"),
        ("ssl_verify_mode=2", "ssl_verify_mode 3"),
        ("ssl_verify_mode=3", "ssl_verify_mode 7"),
        ("ssl_wbuf_size=4", "ssl_wbuf_size 4096"),
        ("ssl_session_cache", "ssl_session_cache yes"),
        ("ssl_min_version=2", "ssl_min_version tlsv1.2"),
        ("ssl_min_version=3", "ssl_min_version tlsv1.3"),
        ("ssl_keyformat=1", "ssl_keyformat 1"),
    ] {
        let authority_path = files.path("ca.pem");
        let options =
            format!("{certificate_options},ssl_ca_cert={},{tls_option}", authority_path.display());
        let flags: [&str; 5] = [&enable, &option, &options, "-l", "notls:127.0.0.1"];
        let rows = request_tls_settings(&Server::start(&flags));
        assert_eq!(rows.len(), 11, "{rows:?}");
        assert!(rows.contains(&format!("STAT {expected_row}")), "{rows:?}");
        if let Some(memcached) = &oracle {
            let mut command = Command::new(memcached);
            command.args(["-p", "-1", "-U", "0", "-u", "root"]).args(flags);
            assert_eq!(rows, request_tls_settings(&Server::run(command)), "{tls_option}");
        }
    }
}

/// The niceness of a server's thread (`proc_pid_stat(5)`, field 19), once the thread has its name.
fn read_niceness(server: &Server, thread_name: &str) -> Option<i32> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let mut stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")));
    let name_field = format!("({thread_name}) ");
    stats.find_map(|stat| {
        let stat = stat.unwrap();
        let (_, fields) = stat.split_once(&name_field)?;
        fields.split(' ').nth(16).unwrap().parse().ok()
    })
}

#[test]
fn the_threads_before_a_login_are_nicer_than_the_workers_of_a_nice_server() {
    let files = Files::new();
    // A process inherits the niceness of the thread that starts it.
    let (server, inherited) = thread::scope(|scope| {
        let nice_thread = scope.spawn(|| {
            let niceness = rustix::process::nice(3).unwrap();
            (files.serve(), niceness)
        });
        nice_thread.join().unwrap()
    });
    for (name, nicer_by) in [("gc-worker-0", 0), ("gc-handshakes", 5), ("gc-login", 10)] {
        let expected = Some((inherited + nicer_by).min(19));
        let deadline = Instant::now() + Duration::from_secs(20);
        // Each thread lowers its priority when it begins.
        while read_niceness(&server, name) != expected && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(read_niceness(&server, name), expected, "{name}");
    }
}

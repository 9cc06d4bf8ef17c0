//! Large values that arrive: many at once, as large as they may be, and behind some that stand still.

mod live;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use glasscache_server::{Config, start};

use live::{config, connect, talk};

#[test]
fn stalled_uploads_make_room_for_one_that_moves() {
    let server = start(config()).unwrap();
    // Sixteen values of 1 MB at half: all that uploads may hold of 64 MiB.
    let stalled: Vec<TcpStream> = (0..16)
        .map(|number| {
            let mut client = connect(&server);
            let mut request = format!("set stalled{number} 0 0 1000000\r\n").into_bytes();
            request.resize(request.len() + 700_000, b'x');
            client.write_all(&request).unwrap();
            client
        })
        .collect();
    let mut request = b"set moves 0 0 1000000\r\n".to_vec();
    request.resize(request.len() + 1_000_000, b'y');
    request.extend_from_slice(b"\r\n");
    // Who gets room and then stands still is closed in its turn: several times two seconds may pass.
    let patience = Duration::from_mins(1);
    let is_stored = || {
        let mut client = connect(&server);
        client.set_read_timeout(Some(patience)).unwrap();
        client.write_all(&request).unwrap();
        let mut reply = [0; 8];
        client.read_exact(&mut reply).unwrap();
        &reply == b"STORED\r\n"
    };
    let is_open = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let seen = stream.read(&mut [0]);
        seen.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    // Room is made once somebody has stood still for long enough, however slow this machine is.
    let deadline = Instant::now() + patience;
    let open = loop {
        let was_stored = is_stored();
        let open = stalled.iter().filter(|stream| is_open(stream)).count();
        if (was_stored && open < 16) || Instant::now() > deadline {
            break open;
        }
    };
    // By closing one that stood still, and not by closing them all.
    assert!((1..16).contains(&open), "{open} of 16 are open");
    // A worker that looked for room without sleeping would turn hundreds of thousands of times.
    let turns = row(&mut connect(&server), "loop_turns");
    assert!(turns < 20_000, "{turns} turns");
}

#[test]
fn many_large_values_at_once_are_all_stored() {
    let server = start(config()).unwrap();
    // Half of what each sends is four times what uploads may hold of 64 MiB.
    let mut request = b"set large 0 0 1000000\r\n".to_vec();
    request.resize(request.len() + 1_000_000, b'x');
    request.extend_from_slice(b"\r\n");
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let mut client = connect(&server);
                let patience = Duration::from_mins(1);
                client.set_read_timeout(Some(patience)).unwrap();
                for _ in 0..2 {
                    talk(&mut client, &request, b"STORED\r\n");
                }
            });
        }
    });
}

#[test]
fn a_value_of_half_the_memory_is_stored_where_it_may_be() {
    let server = start(Config {
        item_bytes_max: 32 << 20,
        ..config()
    })
    .unwrap();
    let mut client = connect(&server);
    let value = vec![b'x'; 31_000_000];
    for _ in 0..3 {
        let request = [b"set half 0 0 31000000\r\n", &value[..], b"\r\n"].concat();
        talk(&mut client, &request, b"STORED\r\n");
        let reply = [b"VALUE half 0 31000000\r\n", &value[..], b"\r\nEND\r\n"].concat();
        talk(&mut client, b"get half\r\n", &reply);
    }
}

#[test]
fn of_many_uploads_that_wait_only_the_first_few_try_again_and_all_have_their_turn() {
    const STALLED: usize = 300;
    /// The longest time between two looks at those that wait, and what a worker then lets try: four that have begun
    /// and four that have not.
    const LOOK: Duration = Duration::from_millis(10);
    const TRIES_PER_LOOK: u128 = 2 * 4;
    let server = start(Config {
        connections_max: 2 * STALLED as u32,
        ..config()
    })
    .unwrap();
    let begun = Instant::now();
    let mut stalled: Vec<TcpStream> = (0..STALLED)
        .map(|number| {
            let mut client = connect(&server);
            let mut request = format!("set waits{number} 0 0 1000000\r\n").into_bytes();
            request.resize(request.len() + 200, b'x');
            client.write_all(&request).unwrap();
            client
        })
        .collect();
    // As long as senders are not given up: then room changes hands.
    let mut other = connect(&server);
    while begun.elapsed() < Duration::from_millis(900) {
        talk(&mut other, b"get other\r\n", b"END\r\n");
        std::thread::sleep(Duration::from_millis(5));
    }
    let tries = u128::from(row(&mut other, "upload_tries"));
    let looks = 2 * (begun.elapsed().as_millis() / LOOK.as_millis() + 1);
    // Who got room lets the next try at once: at most all of them once more.
    let tries_max = TRIES_PER_LOOK * (looks + STALLED as u128);
    eprintln!("{tries} tries of {STALLED} uploads, at most {tries_max}");
    assert!(tries <= tries_max, "{tries} tries, not {tries_max}");
    // All that begun are given up or served: nobody is forgotten.
    for client in &mut stalled {
        let mut rest = vec![b'x'; 999_800];
        rest.extend_from_slice(b"\r\n");
        client
            .set_read_timeout(Some(Duration::from_mins(1)))
            .unwrap();
        let _ = client.write_all(&rest);
        let mut reply = [0; 8];
        let ended = client.read_exact(&mut reply);
        assert!(
            ended.is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock)
                || &reply == b"STORED\r\n"
        );
    }
}

/// A row of `stats glasscache`.
fn row(client: &mut TcpStream, name: &str) -> u64 {
    client.write_all(b"stats glasscache\r\n").unwrap();
    let lines = BufReader::new(client).lines().map(Result::unwrap);
    let mut rows = lines.take_while(|line| line != "END");
    let value = rows.find_map(|line| line.strip_prefix(&format!("STAT {name} "))?.parse().ok());
    value.unwrap()
}

#[test]
fn an_upload_that_is_refused_on_its_way_takes_the_old_value_along() {
    let server = start(Config {
        memory_bytes: 8 << 20,
        evict: false,
        ..config()
    })
    .unwrap();
    let mut client = connect(&server);
    talk(&mut client, b"set k 0 0 3\r\nold\r\n", b"STORED\r\n");
    // Nothing is evicted: from some value on there is no room.
    let value = "x".repeat(8000);
    for number in 0..2000 {
        write!(client, "set fill{number} 0 0 8000 noreply\r\n{value}\r\n").unwrap();
    }
    let (head, half) = ("set k 0 0 1000000\r\n", "y".repeat(500_000));
    write!(client, "{head}{half}{half}\r\n").unwrap();
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "SERVER_ERROR out of memory storing object\r\n");
    talk(&mut client, b"get k\r\n", b"END\r\n");
}

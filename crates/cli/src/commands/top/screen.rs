//! The table on a terminal: drawn again at each sample and key, until q, Esc or Ctrl-C, which leave a clean terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use glasscache_lab::text::format_duration;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::sampler::{Sample, Sampler};
use super::table::{COLUMNS, Order, Table};
use crate::output::Failure;

/// How long a key may wait until it has an effect.
const KEY_WAIT: Duration = Duration::from_millis(50);

/// The state of the screen.
#[derive(Debug, Default)]
pub(super) struct Screen {
    sample: Sample,
    order: Order,
    interval: Duration,
    is_ended: bool,
}

/// Shows the table until it is ended.
pub(super) fn run(sampler: Sampler, interval: Duration) -> Result<(), Failure> {
    let is_terminated = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_terminated))?;
    }
    let samples = start_sampling(sampler, interval)?;
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, &samples, &is_terminated, interval);
    // Drawing hides it, and what restores the terminal leaves it as it is.
    terminal.show_cursor()?;
    ratatui::try_restore()?;
    result
}

/// A thread that samples, so that a server that does not respond delays no key; it ends with the receiver.
fn start_sampling(mut sampler: Sampler, interval: Duration) -> Result<Receiver<Sample>, Failure> {
    let (sender, receiver) = channel();
    std::thread::Builder::new().name("sampler".to_owned()).spawn(move || {
        while sender.send(sampler.sample()).is_ok() {
            std::thread::sleep(interval);
        }
    })?;
    Ok(receiver)
}

fn show(
    terminal: &mut DefaultTerminal,
    samples: &Receiver<Sample>,
    is_terminated: &AtomicBool,
    interval: Duration,
) -> Result<(), Failure> {
    let mut screen = Screen { interval, ..Screen::default() };
    let mut is_changed = true;
    while !screen.is_ended && !is_terminated.load(Ordering::Relaxed) {
        match samples.try_recv() {
            Ok(sample) => {
                screen.sample = sample;
                is_changed = true;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        if std::mem::take(&mut is_changed) {
            terminal.draw(|frame| screen.draw(frame))?;
        }
        if event::poll(KEY_WAIT)? {
            // A key, or another size of the terminal.
            is_changed = true;
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
            {
                screen.handle(key);
            }
        }
    }
    Ok(())
}

impl Screen {
    /// Carries out a key.
    fn handle(&mut self, key: KeyEvent) {
        let last = COLUMNS.len() - 1;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => self.is_ended = true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                self.is_ended = true;
            }
            KeyCode::Char('r') => self.order.is_ascending = !self.order.is_ascending,
            KeyCode::Char('o') => self.order = Order::default(),
            KeyCode::Right => {
                self.order.column =
                    Some(self.order.column.map_or(1, |column| (column + 1).min(last)));
            }
            KeyCode::Left => {
                self.order.column = self.order.column.and_then(|column| column.checked_sub(1));
            }
            _ => {}
        }
    }

    /// Draws the header, the rows and the keys.
    fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let table = Table::new(&self.sample.rows, usize::from(area.width)).sorted(self.order);
        let mut lines = vec![self.format_status(), self.format_header(&table)];
        lines.extend(table.lines().into_iter().map(|line| {
            let style = if line.is_error { Style::new().fg(Color::Red) } else { Style::new() };
            Line::styled(line.text, style)
        }));
        lines.truncate(usize::from(area.height).saturating_sub(1));
        lines.resize(usize::from(area.height).saturating_sub(1), Line::default());
        let keys = "q end   left/right sort by column   r reverse   o order of the servers";
        lines.push(Line::styled(keys, Style::new().add_modifier(Modifier::DIM)));
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn format_status(&self) -> Line<'static> {
        let Sample { rows, problem } = &self.sample;
        let responding = rows.iter().filter(|row| row.figures.is_ok()).count();
        let text = match rows.len() {
            0 => "glasscache top: waiting for the first sample ...".to_owned(),
            count => format!(
                "glasscache top: {responding} of {count} servers respond; figures of {}",
                format_duration(self.interval)
            ),
        };
        match problem {
            None => Line::from(text),
            Some(problem) => Line::styled(
                format!("--discover: {problem}; these were found before"),
                Style::new().fg(Color::Red),
            ),
        }
    }

    /// The titles, the one that rows are sorted by inverted.
    fn format_header(&self, table: &Table<'_>) -> Line<'static> {
        let style = Style::new().add_modifier(Modifier::BOLD);
        let header = table.header();
        let column = self.order.column.filter(|&column| column < table.column_count);
        let Some(range) = column.map(|column| table.column_range(column)) else {
            return Line::styled(header, style);
        };
        let (before, rest) = header.split_at(range.start);
        let (title, after) = rest.split_at(range.len());
        Line::from(vec![
            Span::styled(before.to_owned(), style),
            Span::styled(title.to_owned(), style.add_modifier(Modifier::REVERSED)),
            Span::styled(after.to_owned(), style),
        ])
    }
}

#[cfg(test)]
mod tests {
    use glasscache_findings::counters::Counters;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::sampler::{Figures, Row};
    use super::*;
    use crate::output::Exit;

    fn row(server: &str, counted: Option<Counters>) -> Row {
        let now = Counters {
            version: "1.6.45-glasscache-0.1.0".into(),
            uptime_s: 93_784,
            items: 3_456_789,
            bytes: 987_654_321,
            limit_bytes: 1 << 30,
            connections: 1000,
            ..Counters::default()
        };
        let interval = counted.map(|counted| (counted, 2.0));
        Row { server: server.into(), figures: Ok(Figures { now, interval }) }
    }

    fn busy(gets: u64) -> Counters {
        Counters {
            gets,
            hits: gets * 9 / 10,
            sets: gets / 10,
            evictions: 246,
            written_bytes: 246_000_000,
            ..Counters::default()
        }
    }

    fn screen() -> Screen {
        let dead = Row {
            server: "10.0.0.9:11211".into(),
            figures: Err(Failure::new(
                Exit::Unreachable,
                "server unavailable: 10.0.0.9:11211 (phase connect): connection refused (os error 111), after three tries",
            )),
        };
        let rows = vec![
            row("127.0.0.1:11211", Some(busy(246_912))),
            row("cache-with-a-long-name.example.org:11211", Some(busy(2))),
            row("/run/new.sock", None),
            dead,
        ];
        let sample = Sample { rows, problem: None };
        Screen { sample, interval: Duration::from_secs(2), ..Screen::default() }
    }

    fn draw(screen: &Screen, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 8)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_table_fits_80_and_120_columns() {
        insta::assert_snapshot!("top_80_columns", draw(&screen(), 80));
        insta::assert_snapshot!("top_120_columns", draw(&screen(), 120));
        // A terminal of any size is drawn.
        for width in [1, 7, 40] {
            assert_eq!(draw(&screen(), width).lines().count(), 8);
        }
    }

    #[test]
    fn a_source_that_fails_is_named_and_the_servers_stay() {
        let mut screen = screen();
        screen.sample.problem = Some("cache.internal: failed to lookup address".to_owned());
        let text = draw(&screen, 80);
        let status =
            "--discover: cache.internal: failed to lookup address; these were found before";
        assert!(text.contains(status) && text.contains("127.0.0.1:11211"), "{text}");
    }

    #[test]
    fn keys_sort_and_end() {
        let mut screen = screen();
        let press =
            |screen: &mut Screen, code| screen.handle(KeyEvent::new(code, KeyModifiers::NONE));
        for _ in 0..5 {
            press(&mut screen, KeyCode::Right);
        }
        press(&mut screen, KeyCode::Char('r'));
        let text = draw(&screen, 120);
        let position = |name: &str| text.find(name).unwrap();
        assert!(position("example.org") < position("127.0.0.1"), "{text}");
        assert!(position("127.0.0.1") < position("/run/new.sock"), "{text}");
        press(&mut screen, KeyCode::Char('o'));
        assert_eq!(screen.order, Order::default());
        for _ in 0..20 {
            press(&mut screen, KeyCode::Right);
        }
        assert_eq!(screen.order.column, Some(COLUMNS.len() - 1));
        screen.handle(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(screen.is_ended);
    }
}

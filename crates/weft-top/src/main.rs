//! `weft-top ADDRESS` shows in the terminal what a database does. `weft top` starts it.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use clap::Parser;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use weft_inspect::Report;
use weft_top::client::Client;
use weft_top::view::{Input, View};

/// How long the program waits for a key until it looks for a new report.
const KEY_PAUSE: Duration = Duration::from_millis(50);

/// Show what a Weft database does, and where its transactions conflict.
#[derive(Debug, Parser)]
#[command(name = "weft-top", version, max_term_width = 100)]
struct Arguments {
    /// The address that the program gives to `weft_inspect::serve`, such as 127.0.0.1:7070
    address: String,

    /// The token, if the server needs one
    #[arg(long, env = "WEFT_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// Seconds between two reports
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,

    /// Print one report as text, and end; this is the default if the output is no terminal
    #[arg(long)]
    once: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give a number of seconds from 0.05 to 3600".to_owned()),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let client = Client::new(&arguments.address, arguments.token);
    let shown = if arguments.once || !io::stdout().is_terminal() {
        client.report().map(|report| print!("{report}"))
    } else {
        let reports = client.follow(Duration::from_secs_f64(arguments.interval));
        let shown = ratatui::run(|terminal| show(terminal, &reports));
        shown.map_err(|error| format!("the terminal does not work: {error}"))
    };
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Shows reports until the user quits.
fn show(
    terminal: &mut DefaultTerminal,
    reports: &Receiver<Result<Report, String>>,
) -> io::Result<()> {
    let mut view = View::default();
    let mut is_new = true;
    loop {
        while let Ok(report) = reports.try_recv() {
            view.add(report);
            is_new = true;
        }
        if std::mem::take(&mut is_new) {
            terminal.draw(|frame| view.draw(frame))?;
        }
        if !event::poll(KEY_PAUSE)? {
            continue;
        }
        is_new = true;
        let Event::Key(key) = event::read()? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
            KeyCode::Char('p' | ' ') => view.act(Input::Pause),
            KeyCode::Up | KeyCode::Char('k') => view.act(Input::Up),
            KeyCode::Down | KeyCode::Char('j') => view.act(Input::Down),
            _ => {}
        }
    }
}

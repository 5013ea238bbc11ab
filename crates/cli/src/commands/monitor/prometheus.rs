//! The readings of a run for Prometheus: GET /metrics over HTTP/1.1, in the text exposition format,
//! version 0.0.4 (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use megabatch_run::monitor::{MonitoredRun, READINGS, Reading};
use megabatch_run::{Error, Result};

use crate::standard_error::tell;

/// Limits of a client's time and request: clients are answered one after the other.
const PATIENCE: Duration = Duration::from_secs(5);
const REQUEST_BYTES_MAX: u64 = 16 << 10;

/// Takes the address, and says so on standard error.
///
/// # Errors
/// A usage failure where it cannot be had.
pub(super) fn listen(address: &str) -> Result<TcpListener> {
    let refuse =
        |error: io::Error| Error::usage(format!("--prometheus {address}: cannot listen here: {error}; give HOST:PORT"));
    let listener = TcpListener::bind(address).map_err(refuse)?;
    tell(format_args!("metrics at http://{}/metrics", listener.local_addr().map_err(refuse)?));
    Ok(listener)
}

/// Answers until no client can be accepted any more, and says why. A client that goes away or talks
/// nonsense is no reason.
pub(super) fn serve(listener: &TcpListener, mut monitored: MonitoredRun) -> Error {
    loop {
        match listener.accept() {
            Ok((stream, _)) => answer(&stream, &mut monitored).unwrap_or_default(),
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            Err(error) => return Error::from(error).context("--prometheus: no client can be accepted"),
        }
    }
}

fn answer(mut stream: &TcpStream, monitored: &mut MonitoredRun) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = request_line(stream)?;
    let refreshed = monitored.refresh();
    let (status, body) = match (route(&request), refreshed) {
        (Route::Metrics, Ok(())) => ("200 OK", exposition(monitored)),
        (Route::Metrics, Err(error)) => ("500 Internal Server Error", format!("{error}\n")),
        (Route::Nowhere, _) => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
        (Route::NotAllowed, _) => ("405 Method Not Allowed", "only GET is answered\n".to_owned()),
    };
    let length = body.len();
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all((head + &body).as_bytes())
}

/// The first line of a request, the rest of which is read as well: a socket that is closed with
/// bytes unread may take its answer with it.
fn request_line(stream: &TcpStream) -> io::Result<String> {
    let mut lines = BufReader::new(stream.take(REQUEST_BYTES_MAX)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    Ok(first)
}

#[derive(Debug, PartialEq)]
enum Route {
    Metrics,
    Nowhere,
    NotAllowed,
}

fn route(request: &str) -> Route {
    let mut words = request.split(' ');
    match (words.next(), words.next()) {
        (Some("GET"), Some(target)) if target.split('?').next() == Some("/metrics") => Route::Metrics,
        (Some("GET"), _) => Route::Nowhere,
        _ => Route::NotAllowed,
    }
}

/// A gauge a reading that is known, labelled with the run's folder.
fn exposition(monitored: &MonitoredRun) -> String {
    let run = escape(monitored.name());
    let known = READINGS.iter().filter_map(|reading| Some((reading, monitored.status.get(reading.key)?)));
    let gauge = |(reading, value): (&Reading, f64)| {
        let (name, about) = (format!("megabatch_{}", reading.key), reading.about);
        let kind = if reading.key.ends_with("_total") { "counter" } else { "gauge" };
        format!("# HELP {name} {about}\n# TYPE {name} {kind}\n{name}{{run=\"{run}\"}} {value}\n")
    };
    known.map(gauge).collect()
}

/// The value of a label.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use megabatch_run::monitor::fixtures::step;

    use super::*;

    #[test]
    fn requests_are_routed() {
        for (request, expected) in [
            ("GET /metrics HTTP/1.1", Route::Metrics),
            ("GET /metrics?x=1 HTTP/1.1", Route::Metrics),
            ("GET / HTTP/1.1", Route::Nowhere),
            ("GET /metricsx HTTP/1.1", Route::Nowhere),
            ("GET", Route::Nowhere),
            ("POST /metrics HTTP/1.1", Route::NotAllowed),
            ("", Route::NotAllowed),
        ] {
            assert_eq!(route(request), expected, "{request}");
        }
        assert_eq!(escape("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
    }

    /// Asks the way a scraper does; the whole answer.
    fn ask(monitored: &mut MonitoredRun, request: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        answer(&listener.accept().unwrap().0, monitored).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_scraper_gets_what_the_log_says_when_it_asks() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.yaml"), "").unwrap();
        let mut monitored = MonitoredRun::open(folder.path()).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n";
        assert!(!ask(&mut monitored, request).contains("megabatch_loss"));
        fs::write(folder.path().join("metrics.jsonl"), format!("{}\n", step(3, 0.25))).unwrap();
        let text = ask(&mut monitored, request);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(&format!("Content-Length: {}", body.len())),
            "{head}"
        );
        let run = folder.path().display();
        let gauge = format!("# TYPE megabatch_loss gauge\nmegabatch_loss{{run=\"{run}\"}} 0.25\n");
        assert!(body.contains(&gauge) && body.contains("# TYPE megabatch_rollbacks_total counter"), "{body}");
        // Every line of the format is a comment, or a name with labels and a number.
        for line in body.lines().filter(|line| !line.starts_with("# HELP ") && !line.starts_with("# TYPE ")) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("megabatch_") && name.ends_with("\"}") && value.parse::<f64>().is_ok(), "{line}");
        }
        assert!(ask(&mut monitored, "PUT /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(&mut monitored, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    }
}

//! The commands that a README shows are run as they stand, in the order in which they stand.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::stage::Stage;
use crate::workspace;

/// One command of a `sh` block: the line on which it begins, and its text with continuations
/// joined.
#[derive(Debug, PartialEq)]
struct Shown {
    line: usize,
    text: String,
}

/// The commands of all `sh` blocks of a page, without comments.
fn shown(page: &str) -> Vec<Shown> {
    let (mut commands, mut in_block, mut continues) = (Vec::<Shown>::new(), false, false);
    for (k, line) in page.lines().enumerate() {
        let text = line.trim();
        if text.starts_with("```") {
            (in_block, continues) = (!in_block && text == "```sh", false);
        } else if in_block && !text.is_empty() && !text.starts_with('#') {
            let (part, goes_on) = text.strip_suffix('\\').map_or((text, false), |part| (part.trim_end(), true));
            match commands.last_mut().filter(|_| continues) {
                Some(command) => command.text += &format!(" {part}"),
                None => commands.push(Shown { line: k + 1, text: part.to_owned() }),
            }
            continues = goes_on;
        }
    }
    commands
}

/// True if `cargo xtask` knows `command`.
fn is_known_to_xtask(command: &str) -> bool {
    let main = fs::read_to_string(workspace().join("xtask/src/main.rs")).unwrap();
    main.contains(&format!("\n        \"{command}\" =>"))
}

/// Runs a page's `megabatch` commands in an empty folder and looks up its `cargo xtask` commands;
/// how many ran.
fn check_page(page: &Path) -> usize {
    check_page_on(&Stage::new(), page)
}

/// The same in the folder of `stage`, which has the data that the page begins with.
fn check_page_on(stage: &Stage, page: &Path) -> usize {
    let text = fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let mut ran = 0;
    for Shown { line, text } in shown(&text) {
        let place = format!("{}:{line}: {text}", page.display());
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["megabatch", ..] => {
                run_in_shell(stage, &text, &place);
                ran += 1;
            }
            ["cargo", "xtask", command, ..] => assert!(is_known_to_xtask(command), "{place}: no such command"),
            ["cargo" | "git" | "cd", ..] => {}
            _ => panic!("{place}: neither run nor known to need no run"),
        }
    }
    ran
}

/// Runs a command as a user's shell would, quotes and redirections included.
fn run_in_shell(stage: &Stage, command: &str, place: &str) {
    let megabatch = stage.command("");
    let binaries = Path::new(megabatch.get_program()).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(binaries.to_owned()).chain(std::env::split_paths(&path))).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", command]).current_dir(stage.path("")).env("PATH", path);
    for (name, value) in megabatch.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{place}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_commands_of_the_readme_run() {
    assert!(check_page(&workspace().join("README.md")) > 0, "the README shows no command");
}

#[test]
fn the_commands_of_the_libraries_readmes_run() {
    for library in fs::read_dir(workspace().join("crates")).unwrap() {
        let page = library.unwrap().path().join("README.md");
        if page.exists() {
            check_page(&page);
        }
    }
}

#[test]
fn the_commands_of_the_pages_about_memory_run() {
    for page in ["docs/measurements/memory.md", "docs/design/fragmentation.md"] {
        assert!(check_page(&workspace().join(page)) > 0, "{page} shows no command");
    }
}

/// Forty rings and stars of carbon in the files of a TU dataset, `MUTAG`, and chains of it with
/// their energies, `energies.sdf`.
fn write_molecules(stage: &Stage) {
    fs::create_dir(stage.path("MUTAG")).unwrap();
    let (mut edges, mut indicators, mut labels, mut atoms, mut first) =
        (String::new(), String::new(), String::new(), String::new(), 1);
    for graph in 0..40 {
        let (nodes, star) = (4 + graph / 8, graph % 2 == 1);
        for node in 0..nodes {
            indicators += &format!("{}\n", graph + 1);
            atoms += &format!("{}\n", u8::from(node == 0));
            let to = if star { first } else { first + (node + 1) % nodes };
            if first + node != to {
                edges += &format!("{}, {to}\n{to}, {}\n", first + node, first + node);
            }
        }
        labels += &format!("{}\n", if star { 1 } else { -1 });
        first += nodes;
    }
    let files = [("A", edges), ("graph_indicator", indicators), ("graph_labels", labels), ("node_labels", atoms)];
    for (name, text) in files {
        stage.write(&format!("MUTAG/MUTAG_{name}.txt"), &text);
    }
    let molecule = |carbons: usize| {
        let atom =
            |k: usize| format!("{:>10.4}    0.0000    0.0000 C   0  0  0  0  0  0  0  0  0  0  0  0\n", k as f64);
        let atoms: String = (0..carbons).map(atom).collect();
        let bonds: String = (1..carbons).map(|k| format!("{k:>3}{:>3}  1  0\n", k + 1)).collect();
        let counts = format!("{carbons:>3}{:>3}  0  0  0  0  0  0  0  0999 V2000", carbons - 1);
        let energy = -1.5 * carbons as f64;
        format!("chain\n  made up\n\n{counts}\n{atoms}{bonds}M  END\n> <energy>\n{energy}\n\n$$$$\n")
    };
    stage.write("energies.sdf", &(0..40).map(|k| molecule(2 + k % 7)).collect::<String>());
}

/// A guide page for a kind of user goes from files to a judged model, with small data in place of
/// real ones.
#[test]
fn the_commands_of_the_guide_run() {
    let stage = Stage::new();
    write_molecules(&stage);
    assert!(check_page_on(&stage, &workspace().join("docs/guide/molecules.md")) > 8);
    assert!(check_page(&workspace().join("docs/guide/yahoo.md")) > 8);
    let stage = Stage::new();
    write_days(&stage);
    assert!(check_page_on(&stage, &workspace().join("docs/guide/universe.md")) > 4);
}

/// A guide for the owner of a vendor's files begins with them, here with made-up minutes in their
/// form.
#[test]
fn the_commands_for_the_files_of_vendors_run() {
    for (page, commands_min) in [("metatrader", 9), ("dukascopy-binance", 8), ("bid-ask", 4), ("ticks", 6)] {
        let stage = Stage::new();
        write_exports(&stage);
        assert!(check_page_on(&stage, &workspace().join(format!("docs/guide/{page}.md"))) >= commands_min, "{page}");
    }
}

/// Minutes of the first four weeks of January 2018 as MetaTrader 5, Dukascopy and Binance write
/// them, as a file of the bid and one of the ask, and as ticks.
fn write_exports(stage: &Stage) {
    stage.succeeds("synth bars.csv --days 28");
    let bars = stage.text("bars.csv");
    let minutes: Vec<Minute<'_>> = bars.lines().skip(1).map(Minute::parse).collect();
    let write = |name: &str, header: &str, line: &dyn Fn(&Minute<'_>) -> String| {
        fs::create_dir_all(stage.path(name).parent().unwrap()).unwrap();
        stage.write(name, &minutes.iter().fold(header.to_owned(), |text, minute| text + &line(minute)));
    };

    for (symbol, price) in [("EURUSD", 1.0), ("XAUUSD", 1100.0), ("BTCUSD", 9000.0)] {
        write(
            &format!("MT5/{symbol}_M1_201806010000_201806292359.csv"),
            "<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>\r\n",
            &|minute| {
                let prices = minute.prices_times(price, "\t");
                format!("{}\t{}:00\t{prices}\t{}\t0\t12\r\n", minute.day.replace('-', "."), minute.clock, minute.volume)
            },
        );
    }

    write(
        "dukascopy/EURUSD_Candlestick_1_M_BID_01.01.2018-11.02.2018.csv",
        "Gmt time,Open,High,Low,Close,Volume\n",
        &|minute| {
            let (year_month, day) = minute.day.rsplit_once('-').unwrap();
            let (year, month) = year_month.split_once('-').unwrap();
            let prices = minute.prices_times(1.0, ",");
            format!("{day}.{month}.{year} {}:00.000,{prices},{}.5\n", minute.clock, minute.volume)
        },
    );

    // Two quotes a minute.
    write(
        "ticks/EURUSD_201801010000_201801282359.csv",
        "<DATE>\t<TIME>\t<BID>\t<ASK>\t<LAST>\t<VOLUME>\t<FLAGS>\r\n",
        &|minute| {
            let (day, clock, open, close) =
                (minute.day.replace('-', "."), minute.clock, minute.prices[0], minute.prices[3]);
            let ask = open + 2e-5;
            format!(
                "{day}\t{clock}:00.125\t{open:.5}\t{ask:.5}\t\t\t6\r\n{day}\t{clock}:59.000\t{:.5}\t\t\t\t2\r\n",
                close.min(ask)
            )
        },
    );
    write("ticks/EURUSD_Ticks_01.01.2018-28.01.2018.csv", "Gmt time,Ask,Bid,AskVolume,BidVolume\n", &|minute| {
        let day: Vec<&str> = minute.day.split('-').rev().collect();
        let (day, bid) = (day.join("."), minute.prices[3]);
        format!("{day} {}:30.250,{:.5},{bid:.5},0.75,1.12\n", minute.clock, bid + 3e-5)
    });

    for (month, epoch, unit) in [("2024-12", 1_733_011_200, 1_000), ("2025-01", 1_735_689_600, 1_000_000)] {
        write(&format!("binance/BTCUSDT-1m-{month}.csv"), "", &|minute| {
            let open = epoch + minute.seconds_of_month();
            let prices = minute.prices_times(9000.0, ",");
            format!("{},{prices},{},{},1.5,7,0.5,0.7,0\n", open * unit, minute.volume, (open + 60) * unit - 1)
        });
    }

    for (side, price) in [("bid", 75.0), ("ask", 75.0002)] {
        write(&format!("usdjpy-m1-{side}-2013.csv"), "timestamp,open,high,low,close\n", &|minute| {
            format!("{} {}:00+00:00,{}\n", minute.day, minute.clock, minute.prices_times(price, ","))
        });
    }
}

/// A row of `megabatch synth`.
struct Minute<'a> {
    /// As in 2018-01-31.
    day: &'a str,
    /// As in 23:59.
    clock: &'a str,
    prices: Vec<f64>,
    volume: &'a str,
}

impl<'a> Minute<'a> {
    fn parse(row: &'a str) -> Self {
        let fields: Vec<&str> = row.split(',').collect();
        let (day, clock) = fields[0].split_once(' ').expect("a day and a clock");
        let prices = fields[1..5].iter().map(|price| price.parse().unwrap()).collect();
        Minute { day, clock, prices, volume: fields[5] }
    }

    fn prices_times(&self, factor: f64, separator: &str) -> String {
        self.prices.iter().map(|price| format!("{:.5}", price * factor)).collect::<Vec<_>>().join(separator)
    }

    fn seconds_of_month(&self) -> u64 {
        let number = |text: &str| text.parse::<u64>().unwrap();
        86_400 * (number(&self.day[8..]) - 1) + 3600 * number(&self.clock[..2]) + 60 * number(&self.clock[3..])
    }
}

/// Minutes of a January up to its 29th, of its 30th, and of its 31st.
fn write_days(stage: &Stage) {
    stage.succeeds("synth EURUSD.csv --days 31");
    let bars = stage.text("EURUSD.csv");
    let at = |day: &str| bars.find(day).expect("a day that was made");
    let (day, live) = (at("2018-01-30"), at("2018-01-31"));
    for (name, part) in
        [("EURUSD-2018-01.csv", &bars[..day]), ("EURUSD-2018-01-30.csv", &bars[day..live]), ("live.csv", &bars[live..])]
    {
        stage.write(name, part);
    }
}

#[test]
fn commands_are_read_as_a_shell_would() {
    let page = "```sh\n# comment\nmegabatch a \\\n  --b \\\n  c\n\nmegabatch d\n```\n```rust\nmegabatch e\n```\n  ```sh\n  cargo xtask f\n  ```\n";
    let expected = [(3, "megabatch a --b c"), (7, "megabatch d"), (13, "cargo xtask f")];
    assert_eq!(shown(page), expected.map(|(line, text)| Shown { line, text: text.to_owned() }));
    assert!(is_known_to_xtask("demo") && !is_known_to_xtask("dance"));
}

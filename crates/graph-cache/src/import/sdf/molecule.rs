//! Parser of SDF files: molfiles of version V2000, each with data items, one after the other.
//!
//! Source: BIOVIA, "CTfile Formats", chapters "The Connection Table" and "SDfiles".

use super::lines::{FixedLine, FixedLines};
use crate::error::Result;
use crate::import::text::Text;

/// Atoms, bonds and data of one molecule.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Molecule {
    /// First line in the file.
    pub(super) line: u64,
    pub(super) atoms: Vec<Atom>,
    pub(super) bonds: Vec<Bond>,
    /// Names and values of its data items.
    pub(super) data: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Atom {
    /// In the unit of the file, which is ångström.
    pub(super) position: [f32; 3],
    /// Atomic number.
    pub(super) element: u8,
    /// Formal charge.
    pub(super) charge: i8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bond {
    /// Places of its atoms.
    pub(super) atoms: [u16; 2],
    /// 1 single, 2 double, 3 triple, 4 aromatic.
    pub(super) order: u8,
}

/// Formal charge of an atom by the code in its own line.
const CHARGES: [i8; 8] = [0, 3, 2, 1, 0, -1, -2, -3];

/// All molecules of a file.
pub(super) fn read(text: &Text) -> Result<Vec<Molecule>> {
    let mut lines = FixedLines::new(text);
    let mut molecules = Vec::new();
    while !lines.only_blanks_left() {
        molecules.push(molecule(&mut lines)?);
    }
    Ok(molecules)
}

fn molecule(lines: &mut FixedLines<'_>) -> Result<Molecule> {
    let line = lines.need("a molecule: three lines of header")?.number;
    lines.need("the second line of a molecule's header")?;
    lines.need("the third line of a molecule's header")?;
    let (atoms, bonds) = counts(&lines.need("the numbers of atoms and bonds")?)?;
    let mut molecule = Molecule { line, ..Molecule::default() };
    for _ in 0..atoms {
        molecule.atoms.push(atom(&lines.need("a line an atom, as many as the counts say")?)?);
    }
    for _ in 0..bonds {
        molecule.bonds.push(bond(&lines.need("a line a bond, as many as the counts say")?, atoms)?);
    }
    properties(lines, &mut molecule.atoms)?;
    molecule.data = data(lines)?;
    Ok(molecule)
}

/// `aaabbblllfffcccsssxxxrrrpppiiimmmvvvvvv`: numbers of atoms and of bonds, and the version.
fn counts(line: &FixedLine<'_>) -> Result<(u16, u16)> {
    match line.text(33..39)? {
        "V2000" => {}
        "V3000" => {
            return Err(line.error(33..39, "version V2000; convert the file, such as with `obabel in.sdf -O out.sdf`"));
        }
        _ => return Err(line.error(33..39, "the version V2000, in the line of the numbers of atoms and bonds")),
    }
    let atoms = line.number(0..3, "the number of atoms")?;
    if atoms == 0 {
        return Err(line.error(0..3, "an atom at least; leave out molecules without atoms, of which nothing is learnt"));
    }
    Ok((atoms, line.number(3..6, "the number of bonds")?))
}

/// `xxxxx.xxxxyyyyy.yyyyzzzzz.zzzz aaaddcccssshhhbbbvvvHHHrrriiimmmnnneee`
fn atom(line: &FixedLine<'_>) -> Result<Atom> {
    let coordinate = |columns: std::ops::Range<usize>| {
        let number: f32 = line.number(columns.clone(), "a coordinate, in ten columns")?;
        if number.is_finite() { Ok(number) } else { Err(line.error(columns, "a finite coordinate")) }
    };
    let position = [coordinate(0..10)?, coordinate(10..20)?, coordinate(20..30)?];
    let element = atomic_number(line.text(31..34)?).ok_or_else(|| line.error(31..34, "the symbol of an element"))?;
    let code = match line.text(36..39)? {
        "" => 0,
        _ => line.number::<usize>(36..39, "the code of a charge, 0 to 7")?,
    };
    let charge = CHARGES.get(code).ok_or_else(|| line.error(36..39, "the code of a charge, 0 to 7"))?;
    Ok(Atom { position, element, charge: *charge })
}

/// `111222tttsssxxxrrrccc`
fn bond(line: &FixedLine<'_>, atoms: u16) -> Result<Bond> {
    let end = |columns: std::ops::Range<usize>| {
        let expected = || format!("the number of an atom, 1 to {atoms}");
        let number: u16 = line.number(columns.clone(), &expected())?;
        if (1..=atoms).contains(&number) { Ok(number - 1) } else { Err(line.error(columns, expected())) }
    };
    let ends = [end(0..3)?, end(3..6)?];
    if ends[0] == ends[1] {
        return Err(line.error(3..6, "another atom than the first"));
    }
    let order = line.number(6..9, "the order of a bond, 1 to 4")?;
    match order {
        1..=4 => Ok(Bond { atoms: ends, order }),
        _ => Err(line.error(6..9, "the order of a bond, 1 to 4; those above are of queries, not of molecules")),
    }
}

/// Lines up to `M  END`, of which `M  CHGnn8 aaa vvv …` gives charges, which override those in the
/// lines of atoms.
fn properties(lines: &mut FixedLines<'_>, atoms: &mut [Atom]) -> Result<()> {
    let mut charged = false;
    loop {
        let line = lines.need("`M  END`")?;
        match line.text(0..6)? {
            "M  END" => return Ok(()),
            "M  CHG" => {
                if !std::mem::replace(&mut charged, true) {
                    atoms.iter_mut().for_each(|atom| atom.charge = 0);
                }
                charges(&line, atoms)?;
            }
            start if start.starts_with("$$$$") => return Err(line.error(0..6, "`M  END` before the molecule ends")),
            _ => {}
        }
    }
}

fn charges(line: &FixedLine<'_>, atoms: &mut [Atom]) -> Result<()> {
    let entries: usize = line.number(6..9, "how many charges follow")?;
    for entry in 0..entries {
        let columns = 10 + 8 * entry..13 + 8 * entry;
        let expected = || format!("the number of an atom, 1 to {}", atoms.len());
        let atom =
            line.number::<usize>(columns.clone(), &expected())?.checked_sub(1).filter(|&atom| atom < atoms.len());
        let atom = atom.ok_or_else(|| line.error(columns.clone(), expected()))?;
        atoms[atom].charge = line.number(columns.start + 4..columns.end + 4, "a charge, -128 to 127")?;
    }
    Ok(())
}

/// Data items up to `$$$$` or the end of the file: `> <name>`, lines of its value, an empty line.
fn data(lines: &mut FixedLines<'_>) -> Result<Vec<(String, String)>> {
    let mut items = Vec::<(String, String)>::new();
    let mut inside = false;
    while let Some(line) = lines.next() {
        let text = line.all()?;
        if text.starts_with("$$$$") {
            break;
        }
        if let Some(header) = text.strip_prefix('>').filter(|_| !inside) {
            let name = header.split_once('<').and_then(|(_, rest)| rest.rsplit_once('>')).map(|(name, _)| name);
            items.push((name.unwrap_or_default().to_owned(), String::new()));
            inside = true;
        } else if text.trim().is_empty() {
            inside = false;
        } else if let Some((_, value)) = items.last_mut().filter(|_| inside) {
            value.push_str(if value.is_empty() { "" } else { "\n" });
            value.push_str(text.trim());
        }
    }
    Ok(items)
}

/// Symbols of the elements in the order of their atomic numbers, from 1.
const SYMBOLS: [&str; 118] = [
    "H", "He", "Li", "Be", "B", "C", "N", "O", "F", "Ne", "Na", "Mg", "Al", "Si", "P", "S", "Cl", "Ar", "K", "Ca",
    "Sc", "Ti", "V", "Cr", "Mn", "Fe", "Co", "Ni", "Cu", "Zn", "Ga", "Ge", "As", "Se", "Br", "Kr", "Rb", "Sr", "Y",
    "Zr", "Nb", "Mo", "Tc", "Ru", "Rh", "Pd", "Ag", "Cd", "In", "Sn", "Sb", "Te", "I", "Xe", "Cs", "Ba", "La", "Ce",
    "Pr", "Nd", "Pm", "Sm", "Eu", "Gd", "Tb", "Dy", "Ho", "Er", "Tm", "Yb", "Lu", "Hf", "Ta", "W", "Re", "Os", "Ir",
    "Pt", "Au", "Hg", "Tl", "Pb", "Bi", "Po", "At", "Rn", "Fr", "Ra", "Ac", "Th", "Pa", "U", "Np", "Pu", "Am", "Cm",
    "Bk", "Cf", "Es", "Fm", "Md", "No", "Lr", "Rf", "Db", "Sg", "Bh", "Hs", "Mt", "Ds", "Rg", "Cn", "Nh", "Fl", "Mc",
    "Lv", "Ts", "Og",
];

/// The atomic number of a symbol; deuterium (`D`) and tritium (`T`) are hydrogen.
fn atomic_number(symbol: &str) -> Option<u8> {
    if matches!(symbol, "D" | "T") {
        return Some(1);
    }
    SYMBOLS.iter().position(|known| *known == symbol).map(|place| place as u8 + 1)
}

/// The symbol of an atomic number.
///
/// # Panics
/// If there is no such element.
pub(super) fn element_symbol(number: u8) -> &'static str {
    SYMBOLS[usize::from(number) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_numbers() {
        for (symbol_, expected) in
            [("H", 1), ("D", 1), ("C", 6), ("Cl", 17), ("I", 53), ("Au", 79), ("U", 92), ("Og", 118)]
        {
            assert_eq!(atomic_number(symbol_), Some(expected), "{symbol_}");
        }
        assert_eq!((element_symbol(1), element_symbol(118)), ("H", "Og"));
        assert!(["", "h", "R#", "CL", "*"].map(atomic_number).iter().all(Option::is_none));
    }
}

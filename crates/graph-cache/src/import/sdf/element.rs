#![forbid(unsafe_code)]

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
pub(super) fn number(symbol: &str) -> Option<u8> {
    if matches!(symbol, "D" | "T") {
        return Some(1);
    }
    SYMBOLS.iter().position(|known| *known == symbol).map(|place| place as u8 + 1)
}

/// The symbol of an atomic number.
///
/// # Panics
/// If there is no such element.
pub(super) fn symbol(number: u8) -> &'static str {
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
            assert_eq!(number(symbol_), Some(expected), "{symbol_}");
        }
        assert_eq!((symbol(1), symbol(118)), ("H", "Og"));
        assert!(["", "h", "R#", "CL", "*"].map(number).iter().all(Option::is_none));
    }
}

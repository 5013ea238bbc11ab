//! Valence check of molecules.

use super::molecule::Molecule;

/// True if no atom has a larger valence than RDKit's sanitization takes: that of the neutral
/// element with as many electrons. Aromatic bonds count as single ones, so that only impossible
/// valences are found.
///
/// Source: RDKit, "The RDKit Book", section "Molecular Sanitization", and the valences of its
/// periodic table.
pub(super) fn is_possible(molecule: &Molecule) -> bool {
    let mut valences = vec![0u32; molecule.atoms.len()];
    for bond in &molecule.bonds {
        let order = if bond.order == 4 { 1 } else { bond.order };
        bond.atoms.iter().for_each(|&atom| valences[usize::from(atom)] += u32::from(order));
    }
    let takes = |(atom, valence): (&super::Atom, u32)| {
        largest(i16::from(atom.element) - i16::from(atom.charge)).is_none_or(|largest| valence <= largest)
    };
    molecule.atoms.iter().zip(valences).all(takes)
}

/// The largest valence of a neutral atom with so many electrons; `None` where it is not restricted.
fn largest(electrons: i16) -> Option<u32> {
    match electrons {
        1 | 9 | 17 | 35 => Some(1),
        8 => Some(2),
        5 | 7 => Some(3),
        6 | 14 => Some(4),
        16 => Some(6),
        15 => Some(7),
        53 => Some(5),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::molecule::{Atom, Bond};
    use super::*;

    #[test]
    fn valences_are_those_of_as_many_electrons() {
        for (element, charge, orders, expected) in [
            (6, 0, &[4; 5][..4], true),
            (6, 0, &[2, 2, 1], false),
            (7, 0, &[1, 2], true),
            (7, 0, &[1, 3], false),
            (7, 1, &[1, 3], true),
            (8, 0, &[2, 1], false),
            (8, -1, &[1, 1], false),
            (16, 0, &[2, 2, 1, 1], true),
            (26, 0, &[3, 3, 3], true),
        ] {
            let atom = |element, charge| Atom { position: [0.0; 3], element, charge };
            // The other ends are iron, which takes any bond.
            let molecule = Molecule {
                atoms: std::iter::once(atom(element, charge)).chain(orders.iter().map(|_| atom(26, 0))).collect(),
                bonds: orders.iter().zip(1..).map(|(&order, other)| Bond { atoms: [0, other], order }).collect(),
                ..Molecule::default()
            };
            assert_eq!(is_possible(&molecule), expected, "element {element}, charge {charge}: {orders:?}");
        }
    }
}

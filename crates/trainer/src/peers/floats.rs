//! Floats in messages.

use super::{PeerLost, Peers};

/// Numbers of a message of a broadcast: few long ones, which the transport cuts up itself.
const BROADCAST_LEN: usize = 1 << 22;

/// Copies the `values` of rank `root` to all ranks.
pub(crate) fn broadcast_floats(peers: &mut dyn Peers, root: usize, values: &mut [f32]) -> Result<(), PeerLost> {
    for values in values.chunks_mut(BROADCAST_LEN) {
        let mut bytes = to_bytes(values);
        peers.broadcast(root, &mut bytes)?;
        if peers.rank() != root {
            from_bytes(&bytes, values);
        }
    }
    Ok(())
}

/// Little-endian, so that every machine of a cluster reads the same numbers.
pub(crate) fn to_bytes(values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * 4];
    to_bytes_in(values, &mut bytes);
    bytes
}

/// Writes `values` to `bytes`, little-endian.
pub(crate) fn to_bytes_in(values: &[f32], bytes: &mut [u8]) {
    bytes.chunks_exact_mut(4).zip(values).for_each(|(bytes, value)| bytes.copy_from_slice(&value.to_le_bytes()));
}

pub(crate) fn from_bytes(bytes: &[u8], values: &mut [f32]) {
    for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(4)) {
        *value = f32::from_le_bytes(bytes.try_into().expect("four bytes"));
    }
}

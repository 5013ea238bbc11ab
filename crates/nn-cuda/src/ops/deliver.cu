// What a batch brings, which came in one copy, to the arrays that it is for. Source of deliver.ptx; launched by batch_upload.rs.

#define THREADS 256

// Words from number `from` on, for the array of which `to` is the address: `CopyCommand` of batch_upload.rs.
struct Parcel {
  unsigned long long to;
  unsigned from, words;
};

// A block for each parcel; no two are for the same words.
extern "C" __global__ void __launch_bounds__(THREADS) deliver(const unsigned* words, const Parcel* parcels) {
  Parcel of = parcels[blockIdx.x];
  unsigned* to = (unsigned*)of.to;
  for (unsigned k = threadIdx.x; k < of.words; k += THREADS) to[k] = words[of.from + k];
}

// Loss scaler and settings of steps, which stay on the device: `DeviceState`, `DeviceStep` and the like of device_scaler.rs.
#pragma once

typedef unsigned long long u64;

#define NONE 0xffffffffu

// Elements of a tensor from number `start` of the buffers on.
struct Chunk {
  u64 start;
  unsigned len;
  unsigned tensor;
};

struct State {
  double loss, terms;                 // the losses of the step: their sum, and of how many terms
  double norm;
  u64 steps;                          // updates done
  float inverse_scale, clip;          // what gradients are multiplied by
  float step_size, root_correction2;  // of the last update
  float scale_before, scale_after;    // the loss scale that the gradients were examined with, and that of the next step
  unsigned bad_chunk, bad_index;      // of the first gradient that is not finite; the chunk is NONE where all are
  unsigned clean_steps, overflows;
  unsigned change;                    // of the loss scale: NO_CHANGE …
  unsigned follows;                   // whether the weights follow the gradients
};

// Factors of an update that do not depend on how many there were before.
struct Rates {
  float lr, coupled_decay, shrink, one_minus_beta1, beta2, one_minus_beta2, epsilon;
};

// What the host tells of a step: read from here, and not passed, so that the launches of all steps are the same.
struct Step {
  double count;      // terms that gradients were divided by, whatever their number turned out to be
  double loss_max;   // of a term, on the average; infinite for none
  double clip_norm;  // infinite for none
  double lr, beta1, beta2;
  Rates rates;
};

#define NO_CHANGE 0
#define GROWTH 1
#define BACKOFF 2
#define COLLAPSE 3

// How the loss scale changes; an interval of 0 stands for one that does not.
struct Rules {
  double growth_factor, backoff_factor;
  unsigned growth_interval, hysteresis;
  float min_scale, max_scale;
};

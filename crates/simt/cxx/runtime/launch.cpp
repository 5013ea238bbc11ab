// The entry from outside, and what kernels ask of the harness.

#include "block.h"

namespace simt {

int launch(const char* kernel, void (*body)(void**), const Launch& launch) {
  Block block(kernel, body, launch);
  for (unsigned z = 0; z < launch.grid[2]; z++) {
    for (unsigned y = 0; y < launch.grid[1]; y++) {
      for (unsigned x = 0; x < launch.grid[0]; x++) {
        if (!block.run({x, y, z})) return 1;
      }
    }
  }
  return 0;
}

int launch_anywhere(const char* kernel, void (*body)(void**), Launch launch) {
  std::vector<char> report(4096);
  launch.report = report.data();
  launch.report_bytes = report.size();
  int failed = simt::launch(kernel, body, launch);
  if (failed) fprintf(stderr, "%s\n", report.data());
  return failed;
}

uint3 thread_index() { return block().running().index; }
uint3 block_index() { return block().index(); }

dim3 block_dim() {
  const uint32_t* size = block().launch().block;
  return {size[0], size[1], size[2]};
}

dim3 grid_dim() {
  const uint32_t* size = block().launch().grid;
  return {size[0], size[1], size[2]};
}

void* shared(unsigned id, const char* name, size_t bytes) {
  void* memory = block().memory().shared({id, name, bytes});
  if (memory == nullptr) block().fail("shared `" + std::string(name) + "` of " + std::to_string(bytes) + " bytes is too large");
  return memory;
}

void* dynamic_shared(const char* name) { return shared(0, name, block().launch().dynamic_shared_bytes); }

Votes sync_block(const char* what, bool predicate, Site site) { return block().sync(what, predicate, site); }

void yield(bool changed) { block().spin(changed); }

void trap(Site site) { block().fail(Block::name(block().running()) + " trapped " + text(site)); }

}  // namespace simt

// The entry from outside, which blocks run when, and what kernels ask of the harness.

#include "block.h"

#include <algorithm>

namespace simt {

namespace {

// A thread that spins waits for another. After so many turns in which every thread only spun, none will ever come.
constexpr unsigned IDLE_TURNS_MAX = 10000;

// A block that changes something in every turn, and never ends, may be waiting for another all the same.
constexpr unsigned TURNS_AHEAD_MAX = 1 << 16;

// Kept from launch to launch, and never cleared: the system gives pages as they are touched. Below the first stack lies one
// more, for a thread that grows out of its own to be told so on.
char* stacks(size_t threads) {
  static thread_local std::unique_ptr<char[]> memory;
  static thread_local size_t capacity = 0;
  if (threads > capacity) {
    memory.reset(new char[(threads + 1) * STACK_BYTES + 63]);
    capacity = threads;
  }
  return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t(63)) + STACK_BYTES;
}

size_t blocks_of(const Launch& launch) { return (size_t)launch.grid[0] * launch.grid[1] * launch.grid[2]; }

uint3 index_of(const Launch& launch, size_t number) {
  size_t row = number / launch.grid[0];
  return {unsigned(number % launch.grid[0]), unsigned(row % launch.grid[1]), unsigned(row / launch.grid[1])};
}

// Lets a block run as far as it gets without the others, so that one which does not wait for them where it must is far ahead of them. False when all that happened was
// spinning.
bool run_ahead(Block& block) {
  unsigned turns = 0;
  while (turns < TURNS_AHEAD_MAX && !block.is_done() && !block.has_failed() && block.turn()) turns++;
  return turns > 0;
}

// Runs blocks that have begun until all their threads have ended; false when a fault was reported. `why`: a line of the report, where a
// thread waits for another for ever.
bool run(const std::vector<Block*>& blocks, const std::string& why) {
  for (unsigned idle_turns = 0; idle_turns < IDLE_TURNS_MAX;) {
    bool moved = false, all_done = true;
    for (Block* block : blocks) {
      moved |= run_ahead(*block);
      if (block->has_failed()) return false;
      all_done &= block->is_done();
    }
    if (all_done) return true;
    idle_turns = moved ? 0 : idle_turns + 1;
  }
  (*std::find_if(blocks.begin(), blocks.end(), [](Block* block) { return !block->is_done(); }))->report_stuck(why);
  return false;
}

bool one_after_another(const char* kernel, void (*body)(void**), const Launch& launch) {
  Global global;
  Block block(kernel, body, launch, stacks(threads_of(launch)), global);
  size_t count = blocks_of(launch);
  std::string why = count == 1 ? "" : "\n  a thread may wait for another block's only in a cooperative launch, whose blocks all run at once";
  for (size_t number = 0; number < count; number++) {
    block.begin(uint32_t(number), index_of(launch, number));
    if (!run({&block}, why)) return false;
  }
  return true;
}

bool all_at_once(const char* kernel, void (*body)(void**), const Launch& launch) {
  size_t threads = threads_of(launch), count = blocks_of(launch);
  char* memory = stacks(threads * count);
  Global global;
  std::vector<std::unique_ptr<Block>> owned;
  std::vector<Block*> blocks;
  for (size_t number = 0; number < count; number++) {
    owned.push_back(std::make_unique<Block>(kernel, body, launch, memory + number * threads * STACK_BYTES, global));
    blocks.push_back(owned.back().get());
    blocks.back()->begin(uint32_t(number), index_of(launch, number));
  }
  return run(blocks, "\n  all blocks of the launch run at once, and none can go on");
}

}  // namespace

int launch(const char* kernel, void (*body)(void**), const Launch& launch) {
  return (launch.cooperative ? all_at_once : one_after_another)(kernel, body, launch) ? 0 : 1;
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

void fence() { block().memory().fence(block().running().number); }

void yield(bool changed) { block().spin(changed); }

void trap(Site site) { block().fail(Block::name(block().running()) + " trapped " + text(site)); }

}  // namespace simt

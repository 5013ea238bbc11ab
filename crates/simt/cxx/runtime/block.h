// A block of threads while it runs: one fiber for each thread, all on one host thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../simt.h"
#include "context.h"
#include "memory.h"

namespace simt {

constexpr unsigned WARP = 32;
constexpr size_t STACK_BYTES = 64 << 10;

enum class State { ready, spinning, at_block_barrier, in_exchange, done };

// One CUDA thread.
struct Fiber {
  Context context;
  uint3 index;
  unsigned number;  // in its block, x fastest
  State state;
  const char* what;  // it waits in
  Site site;
  bool predicate;          // handed to the block's barrier
  const Request* request;  // handed to its warp
  uint64_t result;         // handed back by its warp
  Words gathered;          // handed in to the last gather
};

// The lanes of a warp, a bit each.
struct Lanes {
  uint32_t live;          // have not ended
  uint32_t waiting;       // wait in an operation of the warp
  const Request* common;  // a request that all waiting lanes agree with; null when they differ
};

class Block {
 public:
  // `stacks`: of all threads, above a share for one more.
  Block(const char* kernel, void (*body)(void**), const Launch& launch, char* stacks, Global& global);

  // Makes this block `number`, at `index` of the grid, whose threads have all yet to begin.
  void begin(uint32_t number, uint3 index);

  // Gives every thread that can run its turn. False when all that happened was spinning.
  bool turn();

  bool is_done() const { return running_ == 0; }
  bool has_failed() const { return failed_; }

  // Reports the threads that wait, none of which will ever go on, and why.
  void report_stuck(const std::string& why);

  // Describes a fault and leaves the running fiber for good.
  [[noreturn]] void fail(const std::string& what);

  Votes sync(const char* what, bool predicate, Site site);
  uint64_t exchange(const Request& request);
  void spin(bool changed);

  // Fails when the running thread's frame is below its stack.
  void require_stack(const void* frame);

  Fiber& running() { return *current_; }
  const Launch& launch() const { return launch_; }
  uint3 index() const { return index_; }
  Memory& memory() { return memory_; }
  unsigned warp_of(const Fiber& fiber) const { return fiber.number / WARP; }

  // `thread (3,0,0)` and so on.
  static std::string name(const Fiber& fiber);

 private:
  static void entry();
  void finish();
  void suspend(State state, const char* what, Site site);
  void report(const std::string& what);
  std::string stuck() const;
  void open_barrier_if_complete();
  void require_one_barrier(const Fiber& arrived);
  void open_exchange_if_complete(Fiber* warp, uint32_t mask);
  void require_agreement(const Fiber& arrived, const Fiber* warp, uint32_t waiting);
  Fiber* warp_at(unsigned warp) { return &fibers_[warp * WARP]; }

  const char* kernel_;
  void (*body_)(void**);
  const Launch& launch_;
  Memory memory_;
  uint3 index_ = {};
  std::vector<Fiber> fibers_;
  std::vector<Lanes> lanes_;  // by warp
  char* stacks_;
  Context scheduler_ = {};
  Fiber* current_ = nullptr;
  unsigned waiting_ = 0;  // at the block's barrier
  unsigned running_ = 0;  // not done
  unsigned changes_ = 0;  // by threads that spin, since the turn began
  Votes votes_ = {};
  bool failed_ = false;
};

// The block that this host thread runs.
Block& block();

// Threads of a block.
unsigned threads_of(const Launch& launch);

// `0-31, 40`.
std::string ranges(const std::vector<unsigned>& numbers);

std::string text(Site site);

}  // namespace simt

// The scheduler of a block: who runs next, and what it means when nobody can.

#include "block.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace simt {

namespace {

// In the static TLS block: a load, where the default for a library is a call.
[[gnu::tls_model("initial-exec")]] thread_local Block* running_block = nullptr;

}  // namespace

Block& block() { return *running_block; }

unsigned threads_of(const Launch& launch) { return launch.block[0] * launch.block[1] * launch.block[2]; }

Block::Block(const char* kernel, void (*body)(void**), const Launch& launch, char* stacks, Global& global)
    : kernel_(kernel), body_(body), launch_(launch), memory_(launch, global), fibers_(threads_of(launch)), lanes_((fibers_.size() + WARP - 1) / WARP), stacks_(stacks) {
  memory_.set_stacks(stacks_, fibers_.size() * STACK_BYTES);
}

void Block::begin(uint32_t number, uint3 index) {
  index_ = index;
  running_ = fibers_.size();
  waiting_ = 0;
  memory_.begin_block(number);
  std::fill(lanes_.begin(), lanes_.end(), Lanes{});
  char* stack = stacks_;
  for (unsigned thread = 0; thread < fibers_.size(); thread++, stack += STACK_BYTES) {
    unsigned x = thread % launch_.block[0], y = thread / launch_.block[0];
    Fiber& fiber = fibers_[thread] = {};
    fiber.index = {x, y % launch_.block[1], y / launch_.block[1]};
    fiber.number = thread;
    lanes_[warp_of(fiber)].live |= 1u << thread % WARP;
    start(fiber.context, stack, STACK_BYTES, entry);
  }
}

bool Block::turn() {
  running_block = this;
  changes_ = 0;
  bool ran = false, moved = false;
  for (Fiber& fiber : fibers_) {
    if (fiber.state != State::ready && fiber.state != State::spinning) continue;
    ran = true;
    fiber.state = State::ready;
    current_ = &fiber;
    switch_context(scheduler_, fiber.context);
    if (failed_) return true;
    moved |= fiber.state != State::spinning;
  }
  // No other block wakes a thread that waits at a barrier of its own.
  if (!ran) report(stuck());
  return moved || changes_ > 0;
}

void Block::entry() {
  block().body_(block().launch_.arguments);
  block().finish();
}

void Block::finish() {
  Fiber& fiber = *current_;
  fiber.state = State::done;
  running_--;
  // A thread that ended no longer counts: it may have been the last that the others waited for.
  open_barrier_if_complete();
  Fiber* warp = warp_at(warp_of(fiber));
  Lanes& lanes = lanes_[warp_of(fiber)];
  lanes.live &= ~(1u << fiber.number % WARP);
  for (unsigned lane = 0; lane < WARP; lane++) {
    if (lanes.waiting >> lane & 1) open_exchange_if_complete(warp, warp[lane].request->mask);
  }
  switch_context(fiber.context, scheduler_);
  __builtin_unreachable();
}

void Block::suspend(State state, const char* what, Site site) {
  Fiber& fiber = *current_;
  fiber.state = state;
  fiber.what = what;
  fiber.site = site;
  switch_context(fiber.context, scheduler_);
}

void Block::spin(bool changed) {
  changes_ += changed;
  suspend(State::spinning, "a loop that waits for another thread", {nullptr, 0});
}

Votes Block::sync(const char* what, bool predicate, Site site) {
  Fiber& fiber = *current_;
  fiber.what = what;
  fiber.site = site;
  fiber.predicate = predicate;
  fiber.state = State::at_block_barrier;
  if (waiting_++ > 0) require_one_barrier(fiber);
  open_barrier_if_complete();
  if (fiber.state == State::at_block_barrier) suspend(fiber.state, what, site);
  return votes_;
}

void Block::open_barrier_if_complete() {
  if (waiting_ == 0 || waiting_ < running_) return;
  Votes votes = {0, waiting_};
  for (Fiber& fiber : fibers_) {
    if (fiber.state != State::at_block_barrier) continue;
    votes.nonzero += fiber.predicate;
    fiber.state = State::ready;
  }
  votes_ = votes;
  waiting_ = 0;
  memory_.block_synced();
}

// CUDA leaves undefined what happens when the threads of a block meet at different barriers; the hardware lets them through.
void Block::require_one_barrier(const Fiber& arrived) {
  for (const Fiber& other : fibers_) {
    if (&other == &arrived || other.state != State::at_block_barrier) continue;
    if (other.site.line == arrived.site.line && strcmp(other.site.file, arrived.site.file) == 0) return;
    fail("divergent barrier: " + name(arrived) + " is at " + arrived.what + " " + text(arrived.site) + ", " + name(other) +
         " at " + other.what + " " + text(other.site));
  }
}

void Block::report_stuck(const std::string& why) { report(stuck() + why); }

void Block::report(const std::string& what) {
  failed_ = true;
  std::string where = std::to_string(index_.x) + "," + std::to_string(index_.y) + "," + std::to_string(index_.z);
  std::string report = "kernel " + std::string(kernel_) + ", block (" + where + "): " + what;
  snprintf(launch_.report, launch_.report_bytes, "%s", report.c_str());
}

void Block::fail(const std::string& what) {
  report(what);
  switch_context(current_->context, scheduler_);
  __builtin_unreachable();
}

// Stacks grow downwards, from the end to the start of their share.
void Block::require_stack(const void* frame) {
  const char* bottom = stacks_ + current_->number * STACK_BYTES;
  if (static_cast<const char*>(frame) < bottom) {
    fail(name(*current_) + " used more than " + std::to_string(STACK_BYTES) + " bytes of stack");
  }
}

// The threads that wait, by what for.
std::string Block::stuck() const {
  std::map<std::tuple<std::string, std::string, uint32_t>, std::vector<unsigned>> groups;
  for (const Fiber& fiber : fibers_) {
    if (fiber.state == State::done) continue;
    uint32_t mask = fiber.state == State::in_exchange ? fiber.request->mask : 0;
    groups[{fiber.what, text(fiber.site), mask}].push_back(fiber.number);
  }
  std::string report = "deadlock: no thread can go on";
  for (const auto& [key, numbers] : groups) {
    const auto& [what, site, mask] = key;
    char lanes[32] = "";
    if (mask != 0) snprintf(lanes, sizeof lanes, " with mask 0x%08x", mask);
    report += "\n  threads " + ranges(numbers) + " wait in " + what + lanes + (site.empty() ? "" : " " + site);
  }
  if (running_ < fibers_.size()) report += "\n  the other " + std::to_string(fibers_.size() - running_) + " have ended";
  return report;
}

std::string Block::name(const Fiber& fiber) { return "thread " + std::to_string(fiber.number); }

std::string ranges(const std::vector<unsigned>& numbers) {
  std::string text;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) last++;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[first]);
    if (last > first) text += "-" + std::to_string(numbers[last]);
    first = last + 1;
  }
  return text;
}

std::string text(Site site) {
  return site.file == nullptr ? "" : "at " + std::string(site.file) + ":" + std::to_string(site.line);
}

}  // namespace simt

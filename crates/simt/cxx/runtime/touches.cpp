#include "touches.h"

#include <algorithm>

namespace simt {

namespace {

constexpr uint16_t SEVERAL = 0xffff;
constexpr uint32_t SEVERAL_BLOCKS = ~0u;

constexpr unsigned PAGE_BITS = 12;
constexpr size_t PAGE_BYTES = size_t(1) << PAGE_BITS;

bool unordered(const Touch& earlier, const Touch& now, const Clock& known) {
  if (earlier.block_epoch == 0) return false;
  bool same_warp = earlier.block == now.block && earlier.warp == now.warp;
  if (earlier.block == now.block && earlier.block_epoch != now.block_epoch) return false;
  if (same_warp && (earlier.thread == now.thread || earlier.warp_epoch != now.warp_epoch)) return false;
  return !known.covers(earlier);
}

uint64_t key(const Touch& touch) { return (uint64_t)touch.block << 16 | touch.thread; }

std::string who(const Touch& touch) { return touch.thread == SEVERAL ? "other threads" : "thread " + std::to_string(touch.thread); }

}  // namespace

const char* verb(Kind kind) {
  switch (kind) {
    case Kind::read: return "reads";
    case Kind::write: return "writes";
    case Kind::atomic: return "updates";
  }
  return "";
}

bool Clock::covers(const Touch& touch) const {
  if (touch.block < epochs_.size() && touch.block_epoch < epochs_[touch.block]) return true;
  for (const auto& [thread, releases] : threads_) {
    if (thread == key(touch)) return touch.releases < releases;
  }
  return false;
}

void Clock::learn(const Touch& last) {
  learn_block(last.block, last.block_epoch);
  learn_thread(key(last), last.releases + 1);
}

void Clock::learn(const Clock& other) {
  for (uint32_t block = 0; block < other.epochs_.size(); block++) learn_block(block, other.epochs_[block]);
  for (const auto& [thread, releases] : other.threads_) learn_thread(thread, releases);
}

void Clock::learn_block(uint32_t block, uint32_t epoch) {
  if (block >= epochs_.size()) epochs_.resize(block + 1);
  epochs_[block] = std::max(epochs_[block], epoch);
}

void Clock::learn_thread(uint64_t thread, uint32_t releases) {
  for (auto& [known, of_it] : threads_) {
    if (known == thread) return void(of_it = std::max(of_it, releases));
  }
  threads_.push_back({thread, releases});
}

const Touch* Byte::rival(const Touch& touch, const Clock& known) const {
  bool both_atomic = touch.kind == Kind::atomic && write_.kind == Kind::atomic;
  if (touch.kind != Kind::read && unordered(read_, touch, known)) return &read_;
  return !both_atomic && unordered(write_, touch, known) ? &write_ : nullptr;
}

std::string race_with(const Touch& rival, const Touch& touch) {
  std::string what = std::string(" which ") + verb(rival.kind) + " it at " + place(rival.caller);
  if (rival.block == touch.block) return ", and no barrier lies between that and " + who(rival) + what;
  std::string block = rival.block == SEVERAL_BLOCKS ? "other blocks" : who(rival) + " of block number " + std::to_string(rival.block);
  return ", and nothing orders that and " + block + what;
}

// One record stands for all reads that nothing orders; where several threads read, it says so.
void Byte::note(const Touch& touch, const Clock& known) {
  if (touch.kind != Kind::read) {
    write_ = touch;
    return;
  }
  Touch merged = touch;
  if (unordered(read_, touch, known)) {
    merged.thread = SEVERAL;
    if (read_.warp != touch.warp || read_.block != touch.block) merged.warp = SEVERAL;
    if (read_.block != touch.block) merged.block = SEVERAL_BLOCKS;
  }
  read_ = merged;
}

Byte* Global::bytes(uintptr_t address, size_t& count) {
  uintptr_t page = address >> PAGE_BITS, offset = address % PAGE_BYTES;
  if (bytes_ == nullptr || page != page_) {
    bytes_ = &pages_[page];
    bytes_->resize(PAGE_BYTES);
    page_ = page;
  }
  count = PAGE_BYTES - offset;
  return bytes_->data() + offset;
}

const Clock& Global::released(uintptr_t address) const {
  static const Clock nothing;
  auto found = released_.find(address);
  return found == released_.end() ? nothing : found->second;
}

}  // namespace simt

#include "memory.h"

#include <algorithm>
#include <cstdio>

// The ends of this shared object, from the linker.
extern "C" const char __ehdr_start __attribute__((visibility("hidden")));
extern "C" const char _end __attribute__((visibility("hidden")));

namespace simt {

namespace {

// More than any GPU has for a block.
constexpr size_t ARENA_BYTES = 256 << 10;

// No `__align__` asks for more.
constexpr size_t ALIGN_BYTES = 128;

// Between variables, so that running over the end of one does not reach the next.
constexpr size_t GAP_BYTES = 64;

constexpr uint16_t SEVERAL = 0xffff;

const char* verb(Kind kind) {
  switch (kind) {
    case Kind::read: return "reads";
    case Kind::write: return "writes";
    case Kind::atomic: return "updates";
  }
  return "";
}

uintptr_t image_begin() { return reinterpret_cast<uintptr_t>(&__ehdr_start); }
uintptr_t image_end() { return reinterpret_cast<uintptr_t>(&_end); }

}  // namespace

// The call before the return address.
std::string place(uintptr_t code) {
  char text[32];
  snprintf(text, sizeof text, "{0x%zx}", code - 1 - image_begin());
  return text;
}

Memory::Memory(const Launch& launch) : launch_(launch), arena_(ARENA_BYTES + ALIGN_BYTES) {
  arena_begin_ = (reinterpret_cast<uintptr_t>(arena_.data()) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
  warp_epochs_.resize((launch.block[0] * launch.block[1] * launch.block[2] + 31) / 32);
}

void Memory::set_stacks(const char* begin, size_t bytes) {
  stacks_begin_ = reinterpret_cast<uintptr_t>(begin);
  stacks_end_ = stacks_begin_ + bytes;
}

// Shared memory does not outlive a block: nothing of it has been written.
void Memory::begin_block() {
  bytes_.clear();
  std::fill_n(reinterpret_cast<char*>(arena_begin_), arena_used_, char(0xff));
  arena_used_ = 0;
  variables_.clear();
  block_epoch_ = 1;
  std::fill(warp_epochs_.begin(), warp_epochs_.end(), 1);
}

void* Memory::shared(const Declaration& declaration) {
  for (const Variable& variable : variables_) {
    bool same = variable.declaration.id == declaration.id && variable.declaration.bytes == declaration.bytes;
    if (same) return reinterpret_cast<void*>(arena_begin_ + variable.offset);
  }
  size_t offset = (arena_used_ + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
  if (offset + declaration.bytes + GAP_BYTES > ARENA_BYTES) return nullptr;
  arena_used_ = offset + declaration.bytes + GAP_BYTES;
  bytes_.resize(arena_used_);
  variables_.push_back({declaration, offset});
  return reinterpret_cast<void*>(arena_begin_ + offset);
}

std::string Memory::check(const Access& access, unsigned thread) {
  if (access.address >= stacks_begin_ && access.address < stacks_end_) return "";
  if (access.address % access.align != 0) {
    return std::string(verb(access.kind)) + " " + std::to_string(access.bytes) + " bytes at an address that is no multiple of that, at " +
           place(access.caller);
  }
  if (access.address >= arena_begin_ && access.address < arena_begin_ + ARENA_BYTES) return check_shared(access, thread);
  return launch_.ranges == nullptr ? "" : check_global(access);
}

std::string Memory::check_global(const Access& access) const {
  uintptr_t end = access.address + access.bytes;
  uint64_t nearest = launch_.range_count;
  for (uint64_t k = 0; k < launch_.range_count; k++) {
    const Range& range = launch_.ranges[k];
    if (access.address >= range.begin && end <= range.end) {
      if (access.kind == Kind::read || range.writable) return "";
      return std::string(verb(access.kind)) + " a buffer that was given for reading only, at " + place(access.caller);
    }
    bool behind = access.address >= range.begin;
    if (behind && (nearest == launch_.range_count || range.begin > launch_.ranges[nearest].begin)) nearest = k;
  }
  if (access.address >= image_begin() && end <= image_end()) return "";
  std::string what = std::string(verb(access.kind)) + " " + std::to_string(access.bytes) + " bytes outside every buffer of the launch";
  if (nearest < launch_.range_count) {
    const Range& range = launch_.ranges[nearest];
    what += ", " + std::to_string(access.address - range.begin) + " bytes after the start of the one of " +
            std::to_string(range.end - range.begin) + " bytes";
  }
  return what + ", at " + place(access.caller);
}

std::string Memory::check_shared(const Access& access, unsigned thread) {
  size_t offset = access.address - arena_begin_;
  if (variable_at(offset, access.bytes) == nullptr) {
    return std::string(verb(access.kind)) + " " + describe(access, offset) + ", which is out of its range, at " + place(access.caller);
  }
  uint16_t warp = (uint16_t)(thread / 32);
  Touch touch = {block_epoch_, warp_epochs_[warp], (uint16_t)thread, warp, access.kind, access.caller};
  for (size_t k = offset; k < offset + access.bytes; k++) {
    Byte& byte = bytes_[k];
    if (access.kind != Kind::write && byte.write.block_epoch == 0) {
      return std::string(verb(access.kind)) + " " + describe(access, offset) + ", which no thread has written, at " + place(access.caller);
    }
    std::string race = this->race(byte, touch);
    if (!race.empty()) return std::string(verb(access.kind)) + " " + describe(access, offset) + " at " + place(access.caller) + race;
    note(byte, touch);
  }
  return "";
}

// Whether no barrier lies between two touches by different threads.
bool Memory::unordered(const Touch& earlier, const Touch& now) const {
  if (earlier.block_epoch != now.block_epoch) return false;
  if (earlier.warp != now.warp) return true;
  return earlier.thread != now.thread && earlier.warp_epoch == now.warp_epoch;
}

std::string Memory::race(const Byte& byte, const Touch& touch) const {
  const Touch* other = nullptr;
  bool both_atomic = touch.kind == Kind::atomic && byte.write.kind == Kind::atomic;
  if (!both_atomic && unordered(byte.write, touch)) other = &byte.write;
  if (touch.kind != Kind::read && unordered(byte.read, touch)) other = &byte.read;
  if (other == nullptr) return "";
  std::string who = other->thread == SEVERAL ? "other threads" : "thread " + std::to_string(other->thread);
  return ", and no barrier lies between that and " + who + " which " + verb(other->kind) + " it at " + place(other->caller);
}

// One record stands for all reads since the last barrier; where several threads read, it says so.
void Memory::note(Byte& byte, const Touch& touch) const {
  if (touch.kind != Kind::read) {
    byte.write = touch;
    return;
  }
  Touch merged = touch;
  if (byte.read.block_epoch == touch.block_epoch) {
    if (byte.read.warp != touch.warp) merged.warp = merged.thread = SEVERAL;
    else if (byte.read.warp_epoch == touch.warp_epoch && byte.read.thread != touch.thread) merged.thread = SEVERAL;
  }
  byte.read = merged;
}

const Memory::Variable* Memory::variable_at(size_t offset, size_t bytes) const {
  for (const Variable& variable : variables_) {
    if (offset >= variable.offset && offset + bytes <= variable.offset + variable.declaration.bytes) return &variable;
  }
  return nullptr;
}

// `4 bytes at offset 1024 of shared `partial` (1024 bytes)`.
std::string Memory::describe(const Access& access, size_t offset) const {
  const Variable* nearest = nullptr;
  for (const Variable& variable : variables_) {
    if (offset >= variable.offset) nearest = &variable;
  }
  std::string what = std::to_string(access.bytes) + " bytes ";
  if (nearest == nullptr) return what + "of shared memory";
  const Declaration& declaration = nearest->declaration;
  return what + "at offset " + std::to_string(offset - nearest->offset) + " of shared `" + declaration.name + "` (" +
         std::to_string(declaration.bytes) + " bytes)";
}

}  // namespace simt

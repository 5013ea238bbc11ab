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

// Notes a touch of so many bytes; what races with it, or null.
const Touch* note_touches(Byte* bytes, size_t count, const Touch& touch, const Clock& known) {
  for (Byte* byte = bytes; byte < bytes + count; byte++) {
    if (const Touch* rival = byte->rival(touch, known)) return rival;
    byte->note(touch, known);
  }
  return nullptr;
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

Memory::Memory(const Launch& launch, Global& global) : launch_(launch), global_(global), arena_(ARENA_BYTES + ALIGN_BYTES) {
  arena_begin_ = (reinterpret_cast<uintptr_t>(arena_.data()) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
  warp_epochs_.resize((launch.block[0] * launch.block[1] * launch.block[2] + 31) / 32);
}

void Memory::set_stacks(const char* begin, size_t bytes) {
  stacks_begin_ = reinterpret_cast<uintptr_t>(begin);
  stacks_end_ = stacks_begin_ + bytes;
}

// Shared memory does not outlive a block: nothing of it has been written.
void Memory::begin_block(uint32_t number) {
  number_ = number;
  knowledge_.clear();
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
  return launch_.ranges == nullptr ? "" : check_global(access, thread);
}

std::string Memory::check_global(const Access& access, unsigned thread) {
  std::string fault = check_range(access);
  if (!fault.empty() || !is_global(access.address)) return fault;
  static const Clock nothing;
  const Clock& known = knowledge_.empty() ? nothing : knowledge_[thread].known;
  Touch touch = touch_of(access.kind, access.caller, thread);
  for (size_t done = 0; done < access.bytes;) {
    size_t count;
    Byte* bytes = global_.bytes(access.address + done, count);
    count = std::min(count, access.bytes - done);
    if (const Touch* rival = note_touches(bytes, count, touch, known)) {
      return std::string(verb(access.kind)) + " " + std::to_string(access.bytes) + " bytes at " + place(access.caller) + race_with(*rival, touch);
    }
    done += count;
  }
  return "";
}

Touch Memory::touch_of(Kind kind, uintptr_t caller, unsigned thread) const {
  uint16_t warp = (uint16_t)(thread / 32);
  uint32_t releases = knowledge_.empty() ? 0 : knowledge_[thread].releases;
  return {number_, block_epoch_, warp_epochs_[warp], releases, (uint16_t)thread, warp, kind, caller};
}

// Not a variable of the kernels' own.
bool Memory::is_global(uintptr_t address) const { return address < image_begin() || address >= image_end(); }

std::string Memory::check_range(const Access& access) const {
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
  Touch touch = touch_of(access.kind, access.caller, thread);
  for (size_t k = offset; k < offset + access.bytes; k++) {
    if (access.kind != Kind::write && !bytes_[k].is_written()) {
      return std::string(verb(access.kind)) + " " + describe(access, offset) + ", which no thread has written, at " + place(access.caller);
    }
  }
  if (const Touch* rival = note_touches(&bytes_[offset], access.bytes, touch, {})) {
    return std::string(verb(access.kind)) + " " + describe(access, offset) + " at " + place(access.caller) + race_with(*rival, touch);
  }
  return "";
}

void Memory::load(uintptr_t address, bool acquires, unsigned thread) {
  if (Knowledge* own = knowledge_of(thread)) (acquires ? own->known : own->loaded).learn(global_.released(address));
}

void Memory::store(uintptr_t address, bool releases, unsigned thread) {
  Knowledge* own = knowledge_of(thread);
  if (own == nullptr) return;
  if (releases) global_.release(address, publish(thread));
  else if (!own->fenced.is_empty()) global_.release(address, own->fenced);
}

void Memory::fence(unsigned thread) {
  Knowledge* own = knowledge_of(thread);
  if (own == nullptr) return;
  own->known.learn(own->loaded);
  own->fenced = publish(thread);
}

// Where touches of global memory are not noted there is none.
Memory::Knowledge* Memory::knowledge_of(unsigned thread) {
  if (launch_.ranges == nullptr) return nullptr;
  knowledge_.resize(warp_epochs_.size() * 32);
  return &knowledge_[thread];
}

// All that has happened for a thread until now, by which what it does next can be told from that.
Clock Memory::publish(unsigned thread) {
  Clock all = knowledge_[thread].known;
  all.learn(touch_of(Kind::atomic, 0, thread));
  knowledge_[thread].releases++;
  return all;
}

void Memory::block_synced() {
  block_epoch_++;
  share(0, knowledge_.size());
}

void Memory::warp_synced(unsigned warp) {
  warp_epochs_[warp]++;
  if (!knowledge_.empty()) share(warp * 32, 32);
}

// What one of these threads knows, all of them do.
void Memory::share(size_t first, size_t count) {
  Clock all;
  for (size_t thread = first; thread < first + count; thread++) all.learn(knowledge_[thread].known);
  for (size_t thread = first; thread < first + count; thread++) knowledge_[thread].known = all;
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

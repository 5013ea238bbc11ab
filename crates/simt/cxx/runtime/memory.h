// The memory that a block may touch, and the rules of touching it.
//
// Every load and store of a kernel is checked before it happens. It must be aligned to its size, as a GPU asks. Global memory must lie in a buffer that the launch was given;
// shared memory must lie in a variable of the block and must have been written before it is read; and no two touches may race, see touches.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

#include "../simt.h"
#include "touches.h"

namespace simt {

struct Access {
  uintptr_t address;
  size_t bytes;
  Kind kind;
  uintptr_t caller;  // return address: the line in the kernel
  size_t align;      // that the kernel's type promises
};

// A `__shared__` declaration. The id 0 is that of the launch's dynamic memory.
struct Declaration {
  unsigned id;
  const char* name;
  size_t bytes;
};

class Memory {
 public:
  Memory(const Launch& launch, Global& global);

  void set_stacks(const char* begin, size_t bytes);
  void begin_block(uint32_t number);
  void* shared(const Declaration& declaration);

  // An empty text, or what is wrong with the access.
  std::string check(const Access& access, unsigned thread);

  // An atomic load from `address`, and an atomic store there.
  void load(uintptr_t address, bool acquires, unsigned thread);
  void store(uintptr_t address, bool releases, unsigned thread);
  void fence(unsigned thread);

  void block_synced();
  void warp_synced(unsigned warp);

 private:
  struct Variable {
    Declaration declaration;
    size_t offset;
  };

  // What a thread knows to have happened; what it would know behind a fence; and what it makes known, since its last one, by whatever it stores.
  struct Knowledge {
    Clock known, loaded, fenced;
    uint32_t releases = 0;
  };

  std::string check_shared(const Access& access, unsigned thread);
  std::string check_global(const Access& access, unsigned thread);
  std::string check_range(const Access& access) const;
  Touch touch_of(Kind kind, uintptr_t caller, unsigned thread) const;
  bool is_global(uintptr_t address) const;
  Knowledge* knowledge_of(unsigned thread);
  Clock publish(unsigned thread);
  void share(size_t first, size_t count);
  std::string describe(const Access& access, size_t offset) const;
  const Variable* variable_at(size_t offset, size_t bytes) const;

  const Launch& launch_;
  Global& global_;
  uint32_t number_ = 0;  // of the block
  uintptr_t stacks_begin_ = 0, stacks_end_ = 0;
  uintptr_t arena_begin_ = 0;
  std::vector<char> arena_;
  size_t arena_used_ = 0;
  std::vector<Variable> variables_;
  std::vector<Byte> bytes_;
  uint32_t block_epoch_ = 1;
  std::vector<uint32_t> warp_epochs_;
  std::vector<Knowledge> knowledge_;  // of each thread; empty before the first atomic or fence
};

}  // namespace simt

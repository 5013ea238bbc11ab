// Memory: physical granules are stretches of one memfd, so that a granule mapped at two addresses really is one memory.
#include "fake.hpp"

#include <cstring>
#include <fcntl.h>
#include <map>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

namespace fake {
namespace {

constexpr uint64_t GRANULE_BYTES = 2u << 20, PAGE_BYTES = 4096;
// Room for any device that a test could ask for; a sparse file takes no memory for it.
constexpr uint64_t FILE_BYTES = 1ull << 40;
// What fresh memory holds: nobody may count on zeros.
constexpr int FRESH_BYTE = 0xCB;

struct Physical {
    uint64_t offset, bytes;
    int mappings;
    bool released;
};
struct Mapping {
    uint64_t bytes, handle;
    bool accessible;
};

int file = -1;
uint64_t handle_last = 0, exists_bytes = 0, offset_next = 0;
std::map<uint64_t, Physical> physical;
std::map<uint64_t, uint64_t> reserved;  // address -> bytes
std::map<uint64_t, Mapping> mapped;     // by address
std::map<uintptr_t, size_t> pinned;     // by address
std::multiset<uintptr_t> copied;        // host addresses of copies that are submitted and not done

int memory_file() {
    if (file < 0) {
        file = memfd_create("fake-gpu", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, static_cast<off_t>(FILE_BYTES)) != 0) return -1;
    }
    return file;
}

bool whole_granules(uint64_t value) { return value % GRANULE_BYTES == 0; }

bool within_a_reservation(uint64_t address, uint64_t bytes) {
    auto next = reserved.upper_bound(address);
    if (next == reserved.begin()) return false;
    auto range = std::prev(next);
    return address + bytes <= range->first + range->second;
}

bool anything_mapped(uint64_t address, uint64_t bytes) {
    auto next = mapped.lower_bound(address + bytes);
    if (next == mapped.begin()) return false;
    auto last = std::prev(next);
    return last->first + last->second.bytes > address;
}

void* place(uint64_t address) { return reinterpret_cast<void*>(address); }

bool cover_with_nothing(uint64_t address, uint64_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    return mmap(place(address), bytes, PROT_NONE, flags, -1, 0) != MAP_FAILED;
}

void end_if_unused(std::map<uint64_t, Physical>::iterator granule) {
    const Physical& memory = granule->second;
    if (!memory.released || memory.mappings > 0) return;
    exists_bytes -= memory.bytes;
    int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    fallocate(file, hole, static_cast<off_t>(memory.offset), static_cast<off_t>(memory.bytes));
    physical.erase(granule);
}

// Whether a copy or a fill may touch the device memory in this range.
bool accessible(uint64_t address, uint64_t bytes) {
    uint64_t end = address + bytes;
    while (address < end) {
        auto next = mapped.upper_bound(address);
        if (next == mapped.begin()) return false;
        auto mapping = std::prev(next);
        uint64_t mapping_end = mapping->first + mapping->second.bytes;
        if (mapping_end <= address || !mapping->second.accessible) return false;
        address = mapping_end;
    }
    return true;
}

bool is_pinned(const void* address, size_t bytes) {
    auto next = pinned.upper_bound(reinterpret_cast<uintptr_t>(address));
    if (next == pinned.begin()) return false;
    auto block = std::prev(next);
    return reinterpret_cast<uintptr_t>(address) + bytes <= block->first + block->second;
}

void forget_copy(uintptr_t host) {
    auto copy = copied.find(host);
    if (copy != copied.end()) copied.erase(copy);
}

// The driver reads and writes pageable memory before the call returns, and pinned memory in the order of the stream. `host`: null for a copy on the device.
int copy(void* stream, void* to, const void* from, size_t bytes, const void* host) {
    bool is_pageable = host != nullptr && !is_pinned(host, bytes);
    // What the host's memory holds later is anybody's guess.
    if (is_capturing(stream) && is_pageable) return spoil_capture(stream);
    auto address = reinterpret_cast<uintptr_t>(host);
    if (host != nullptr) copied.insert(address);
    int code = submit(stream, {"copy", [=] {
        memmove(to, from, bytes);
        forget_copy(address);
    }});
    if (code != SUCCESS) forget_copy(address);
    if (code == SUCCESS && is_pageable) finish(stream);
    return code;
}

int fill(void* stream, uint64_t address, unsigned char value, size_t bytes) {
    if (!accessible(address, bytes)) return INVALID_VALUE;
    return submit(stream, {"fill", [=] {
        if (!settings.empty_kernels) memset(place(address), value, bytes);
    }});
}

bool overlap(uint64_t a, uint64_t b, size_t bytes) { return a < b + bytes && b < a + bytes; }

}  // namespace

uint64_t physical_bytes() { return exists_bytes; }

uint64_t memory_objects() { return physical.size() + reserved.size() + mapped.size() + pinned.size(); }

void reset_memory() {
    for (const auto& range : reserved) munmap(place(range.first), range.second);
    for (const auto& block : pinned) munmap(place(block.first), block.second);
    if (file >= 0) close(file);
    file = -1;
    handle_last = exists_bytes = offset_next = 0;
    physical.clear();
    reserved.clear();
    mapped.clear();
    pinned.clear();
    copied.clear();
}
}  // namespace fake

using namespace fake;

// CUmemAllocationProp and CUmemAccessDesc, as far as they are looked at.
struct AllocationProp {
    int type, handle_types, location_type, location_id;
    unsigned char rest[16];
};
struct AccessDesc {
    int location_type, location_id, flags;
};

// A driver from before virtual memory management does not export these.
#ifdef FAKE_WITHOUT_VIRTUAL_MEMORY
#define FAKE_VIRTUAL_MEMORY_API extern "C"
#else
#define FAKE_VIRTUAL_MEMORY_API FAKE_API
#endif

FAKE_VIRTUAL_MEMORY_API int cuMemGetAllocationGranularity(size_t* bytes, const AllocationProp* prop, int) {
    FAKE_ENTER_CONTEXT(cuMemGetAllocationGranularity);
    if (prop->type != 1 || prop->location_type != 1) return INVALID_VALUE;
    *bytes = GRANULE_BYTES;
    return SUCCESS;
}

// An address that is aligned as asked for and no further, or to a page where nothing is asked for.
FAKE_VIRTUAL_MEMORY_API int cuMemAddressReserve(uint64_t* address, size_t bytes, size_t alignment, uint64_t, unsigned long long flags) {
    FAKE_ENTER_CONTEXT(cuMemAddressReserve);
    if (bytes == 0 || !whole_granules(bytes) || flags != 0 || (alignment & (alignment - 1)) != 0) return INVALID_VALUE;
    uint64_t align = alignment < PAGE_BYTES ? PAGE_BYTES : alignment;
    // More than asked for, of which a part is kept.
    size_t wide = bytes + 3 * align;
    void* start = mmap(nullptr, wide, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return OUT_OF_MEMORY;
    uint64_t first = reinterpret_cast<uint64_t>(start);
    uint64_t aligned = (first + 2 * align - 1) / (2 * align) * (2 * align) + align;
    if (aligned > first) munmap(start, aligned - first);
    if (aligned + bytes < first + wide) munmap(place(aligned + bytes), first + wide - aligned - bytes);
    reserved[aligned] = bytes;
    *address = aligned;
    return SUCCESS;
}

FAKE_VIRTUAL_MEMORY_API int cuMemAddressFree(uint64_t address, size_t bytes) {
    FAKE_ENTER_CONTEXT(cuMemAddressFree);
    auto range = reserved.find(address);
    if (range == reserved.end() || range->second != bytes || anything_mapped(address, bytes)) return INVALID_VALUE;
    munmap(place(address), bytes);
    reserved.erase(range);
    return SUCCESS;
}

FAKE_VIRTUAL_MEMORY_API int cuMemCreate(uint64_t* handle, size_t bytes, const AllocationProp* prop, unsigned long long flags) {
    FAKE_ENTER_UNCAPTURED(cuMemCreate);
    if (bytes == 0 || !whole_granules(bytes) || flags != 0 || prop->type != 1) return INVALID_VALUE;
    if (exists_bytes + bytes + settings.held_by_others_bytes > settings.total_bytes) return OUT_OF_MEMORY;
    if (memory_file() < 0 || offset_next + bytes > FILE_BYTES) return OUT_OF_MEMORY;
    Physical memory = {offset_next, bytes, 0, false};
    void* view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(memory.offset));
    if (view == MAP_FAILED) return OUT_OF_MEMORY;
    memset(view, FRESH_BYTE, bytes);
    munmap(view, bytes);
    offset_next += bytes;
    exists_bytes += bytes;
    physical[++handle_last] = memory;
    *handle = handle_last;
    return SUCCESS;
}

FAKE_VIRTUAL_MEMORY_API int cuMemRelease(uint64_t handle) {
    FAKE_ENTER_CONTEXT(cuMemRelease);
    auto granule = physical.find(handle);
    if (granule == physical.end() || granule->second.released) return INVALID_VALUE;
    granule->second.released = true;
    end_if_unused(granule);
    return SUCCESS;
}

FAKE_VIRTUAL_MEMORY_API int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
    FAKE_ENTER_UNCAPTURED(cuMemMap);
    auto granule = physical.find(handle);
    if (granule == physical.end() || granule->second.released || flags != 0 || offset != 0) return INVALID_VALUE;
    if (bytes != granule->second.bytes || !whole_granules(address) || !within_a_reservation(address, bytes)) return INVALID_VALUE;
    if (anything_mapped(address, bytes)) return INVALID_VALUE;
    off_t from = static_cast<off_t>(granule->second.offset);
    if (mmap(place(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file, from) == MAP_FAILED) return OUT_OF_MEMORY;
    granule->second.mappings += 1;
    mapped[address] = Mapping{bytes, handle, false};
    return SUCCESS;
}

FAKE_VIRTUAL_MEMORY_API int cuMemUnmap(uint64_t address, size_t bytes) {
    FAKE_ENTER_UNCAPTURED(cuMemUnmap);
    // The driver would let the work go on and fault; here the caller learns of it.
    if (pending()) return ILLEGAL_STATE;
    auto mapping = mapped.find(address);
    if (mapping == mapped.end() || mapping->second.bytes != bytes) return INVALID_VALUE;
    if (!cover_with_nothing(address, bytes)) return OUT_OF_MEMORY;
    auto granule = physical.find(mapping->second.handle);
    granule->second.mappings -= 1;
    end_if_unused(granule);
    mapped.erase(mapping);
    return SUCCESS;
}

FAKE_VIRTUAL_MEMORY_API int cuMemSetAccess(uint64_t address, size_t bytes, const AccessDesc* desc, size_t count) {
    FAKE_ENTER_CONTEXT(cuMemSetAccess);
    if (count != 1 || desc->location_type != 1 || desc->flags != 3) return INVALID_VALUE;
    for (uint64_t at = address; at < address + bytes;) {
        auto mapping = mapped.find(at);
        if (mapping == mapped.end()) return INVALID_VALUE;
        at += mapping->second.bytes;
    }
    if (mprotect(place(address), bytes, PROT_READ | PROT_WRITE) != 0) return OUT_OF_MEMORY;
    for (uint64_t at = address; at < address + bytes; at += mapped[at].bytes) mapped[at].accessible = true;
    return SUCCESS;
}

// A mapping of its own, as long as asked for.
FAKE_API int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
    FAKE_ENTER_UNCAPTURED(cuMemAlloc_v2);
    if (bytes == 0) return INVALID_VALUE;
    if (exists_bytes + bytes + settings.held_by_others_bytes > settings.total_bytes) return OUT_OF_MEMORY;
    void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return OUT_OF_MEMORY;
    memset(start, FRESH_BYTE, bytes);
    exists_bytes += bytes;
    *address = reinterpret_cast<uint64_t>(start);
    mapped[*address] = Mapping{bytes, 0, true};
    return SUCCESS;
}

FAKE_API int cuMemFree_v2(uint64_t address) {
    FAKE_ENTER_UNCAPTURED(cuMemFree_v2);
    auto mapping = mapped.find(address);
    if (mapping == mapped.end() || mapping->second.handle != 0) return INVALID_VALUE;
    drain();
    exists_bytes -= mapping->second.bytes;
    munmap(place(address), mapping->second.bytes);
    mapped.erase(mapping);
    return SUCCESS;
}

FAKE_API int cuMemHostAlloc(void** address, size_t bytes, unsigned) {
    FAKE_ENTER_UNCAPTURED(cuMemHostAlloc);
    if (bytes == 0) return INVALID_VALUE;
    void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return OUT_OF_MEMORY;
    memset(start, FRESH_BYTE, bytes);
    pinned[reinterpret_cast<uintptr_t>(start)] = bytes;
    *address = start;
    return SUCCESS;
}

FAKE_API int cuMemFreeHost(void* address) {
    FAKE_ENTER_UNCAPTURED(cuMemFreeHost);
    auto start = reinterpret_cast<uintptr_t>(address);
    auto block = pinned.find(start);
    if (block == pinned.end()) return INVALID_VALUE;
    // Drivers wait, and do not promise it; here the caller learns of it.
    auto copy = copied.lower_bound(start);
    if (copy != copied.end() && *copy < start + block->second) return ILLEGAL_STATE;
    munmap(address, block->second);
    pinned.erase(block);
    return SUCCESS;
}

FAKE_API int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
    FAKE_ENTER_CONTEXT(cuMemcpyHtoDAsync_v2);
    if (!accessible(to, bytes)) return INVALID_VALUE;
    return copy(stream, place(to), from, bytes, from);
}

FAKE_API int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
    FAKE_ENTER_CONTEXT(cuMemcpyDtoHAsync_v2);
    if (!accessible(from, bytes)) return INVALID_VALUE;
    return copy(stream, to, place(from), bytes, to);
}

// The driver leaves overlapping ranges undefined; here they are refused.
FAKE_API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
    FAKE_ENTER_CONTEXT(cuMemcpyDtoDAsync_v2);
    if (!accessible(from, bytes) || !accessible(to, bytes) || overlap(from, to, bytes)) return INVALID_VALUE;
    return copy(stream, place(to), place(from), bytes, nullptr);
}

FAKE_API int cuMemsetD8Async(uint64_t address, unsigned char value, size_t count, void* stream) {
    FAKE_ENTER_CONTEXT(cuMemsetD8Async);
    return fill(stream, address, value, count);
}

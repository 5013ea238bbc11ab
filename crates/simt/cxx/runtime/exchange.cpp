// What the lanes of a warp do together.

#include "block.h"

namespace simt {

namespace {

bool same_site(const Request& a, const Request& b) {
  return a.site.line == b.site.line && (a.site.file == b.site.file || strcmp(a.site.file, b.site.file) == 0);
}

// Lanes may meet at different `__syncwarp`; in any other operation they must have come to the same one.
bool agree(const Request& a, const Request& b) {
  if (a.mask != b.mask || a.exchange != b.exchange) return false;
  return a.exchange == Exchange::barrier || same_site(a, b);
}

std::string text(const Fiber& fiber) {
  char mask[24];
  snprintf(mask, sizeof mask, "mask 0x%08x", fiber.request->mask);
  return Block::name(fiber) + " in " + fiber.what + " " + text(fiber.site) + " with " + mask;
}

// The value that a shuffle gives when its source takes no part: undefined in CUDA, and NaN as a float.
constexpr uint64_t UNDEFINED = ~uint64_t(0);

// Sets what every lane of `taking_part` gets. The lanes agree.
void set_results(Fiber* warp, uint32_t taking_part) {
  const auto each = [&](auto set) {
    for (uint32_t left = taking_part; left != 0; left &= left - 1) set(warp[__builtin_ctz(left)]);
  };
  const auto lanes_where = [&](auto holds) {
    uint32_t lanes = 0;
    each([&](const Fiber& fiber) { lanes |= holds(*fiber.request) ? 1u << fiber.number % WARP : 0u; });
    return (uint64_t)taking_part << 32 | lanes;
  };
  switch (warp[__builtin_ctz(taking_part)].request->exchange) {
    case Exchange::barrier:
      each([](Fiber& fiber) { fiber.result = 0; });
      break;
    case Exchange::shuffle:
      each([&](Fiber& fiber) {
        unsigned source = fiber.request->source_lane;
        fiber.result = taking_part >> source & 1 ? warp[source].request->value : UNDEFINED;
      });
      break;
    case Exchange::gather:
      each([&](Fiber& fiber) {
        memcpy(&fiber.gathered, (const void*)fiber.request->value, sizeof fiber.gathered);
        fiber.result = taking_part;
      });
      break;
    case Exchange::vote: {
      uint64_t votes = lanes_where([](const Request& request) { return request.value != 0; });
      each([&](Fiber& fiber) { fiber.result = votes; });
      break;
    }
    case Exchange::match:
      each([&](Fiber& fiber) {
        fiber.result = lanes_where([&](const Request& request) { return request.value == fiber.request->value; });
      });
      break;
  }
}

}  // namespace

uint64_t Block::exchange(const Request& request) {
  Fiber& fiber = *current_;
  Fiber* warp = warp_at(warp_of(fiber));
  Lanes& lanes = lanes_[warp_of(fiber)];
  fiber.request = &request;
  fiber.what = request.what;
  fiber.site = request.site;
  fiber.state = State::in_exchange;
  if (!(request.mask >> fiber.number % WARP & 1)) fail("divergent warp: the calling lane is not in its mask: " + text(fiber));
  if (lanes.waiting == 0) {
    lanes.common = &request;
  } else if (lanes.common == nullptr || !agree(request, *lanes.common)) {
    lanes.common = nullptr;
    require_agreement(fiber, warp, lanes.waiting);
  }
  lanes.waiting |= 1u << fiber.number % WARP;
  open_exchange_if_complete(warp, request.mask);
  if (fiber.state == State::in_exchange) suspend(fiber.state, request.what, request.site);
  return fiber.result;
}

// Two lanes that wait for each other in different operations would wait for ever, or on a GPU trade wrong values.
void Block::require_agreement(const Fiber& arrived, const Fiber* warp, uint32_t waiting) {
  for (uint32_t others = waiting & arrived.request->mask; others != 0; others &= others - 1) {
    const Fiber& other = warp[__builtin_ctz(others)];
    bool waits_for_arrived = other.request->mask >> arrived.number % WARP & 1;
    if (waits_for_arrived && !agree(*arrived.request, *other.request)) {
      fail("divergent warp: two lanes wait for each other in different operations:\n  " + text(other) + "\n  " + text(arrived));
    }
  }
}

void Block::open_exchange_if_complete(Fiber* warp, uint32_t mask) {
  Lanes& lanes = lanes_[warp_of(*warp)];
  uint32_t taking_part = lanes.live & mask;
  if ((taking_part & ~lanes.waiting) != 0) return;
  if (lanes.common == nullptr) {
    for (uint32_t left = taking_part; left != 0; left &= left - 1) {
      if (warp[__builtin_ctz(left)].request->mask != mask) return;
    }
  }
  set_results(warp, taking_part);
  // Shuffles, votes and matches trade numbers, and order nothing in memory.
  bool orders = warp[__builtin_ctz(taking_part)].request->exchange == Exchange::barrier;
  for (uint32_t left = taking_part; left != 0; left &= left - 1) warp[__builtin_ctz(left)].state = State::ready;
  lanes.waiting &= ~taking_part;
  if (orders) memory_.warp_synced(warp_of(*warp));
}

unsigned lane() { return block().running().number % WARP; }

uint64_t exchange(const Request& request) { return block().exchange(request); }

Words gathered(unsigned lane) {
  const Fiber& own = block().running();
  return (&own)[(int)lane - (int)(own.number % WARP)].gathered;
}

}  // namespace simt

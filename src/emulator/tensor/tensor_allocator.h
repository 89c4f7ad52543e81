// Which columns of the tensor memory of a CTA are allocated, and by whom (PTX ISA, "Tensor Memory
// Allocation" and tcgen05.alloc).

#ifndef WARPLOOM_EMULATOR_TENSOR_TENSOR_ALLOCATOR_H_
#define WARPLOOM_EMULATOR_TENSOR_TENSOR_ALLOCATOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace warploom::emulator {

constexpr uint32_t kTensorLanes = 128;
constexpr uint32_t kTensorColumns = 512;

class TensorAllocator {
 public:
  static constexpr uint32_t kUnit = 32;  // columns; an allocation is a power of two of them

  // Who allocates, and how much.
  struct Request {
    uint32_t columns = 0;
    uint32_t cta_group = 1;
    uint32_t warp = 0;
    int line = 0;  // of the PTX
  };

  bool is_allocated(uint32_t column, uint32_t columns) const {
    const uint32_t units = units_of(column, columns);
    return (used_ & units) == units;
  }
  // Whether the CTA holds these columns or has held them.
  bool was_allocated(uint32_t column, uint32_t columns) const {
    const uint32_t units = units_of(column, columns);
    return (ever_used_ & units) == units;
  }

  // The first free columns, if there are that many. A Fault if the request is illegal.
  std::optional<uint32_t> allocate(const Request& request);

  // tcgen05.alloc.cta_group::2 allocates the same columns in both CTAs, once both have asked for
  // them. `ask` tells whether the request stands: a CTA has one at a time. `agree` grants the
  // requests of both if there is room. `take` gives the warp what it was granted.
  bool ask(const Request& request);
  bool is_asking() const { return asked_.has_value(); }
  static bool agree(TensorAllocator& one, TensorAllocator& other);
  std::optional<uint32_t> take(uint32_t warp);

  // A Fault if this is not exactly what was allocated.
  void free(uint32_t address, uint32_t columns, uint32_t cta_group);
  // The CTA will not allocate again.
  void relinquish(int line);

  // A Fault if a CTA that exits holds columns.
  void check_exit() const;
  // What the CTA holds: "columns 0 to 127 (warp 2, PTX line 40)", or "no columns".
  std::string describe() const;

 private:
  struct Held {
    uint32_t column;
    Request request;
  };

  static constexpr uint32_t units_of(uint32_t column, uint32_t columns) {
    const uint32_t end = (column + columns + kUnit - 1) / kUnit;
    return ((uint32_t{1} << end) - 1) & ~((uint32_t{1} << column / kUnit) - 1);
  }
  static std::optional<uint32_t> find(uint32_t used, uint32_t columns);

  void check(const Request& request) const;
  void hold(uint32_t column, const Request& request);

  uint32_t used_ = 0;  // a bit a unit
  uint32_t ever_used_ = 0;
  std::vector<Held> held_;
  std::optional<Request> asked_;
  std::optional<Held> granted_;
  uint32_t latest_ = kTensorColumns;  // columns of the last allocation: none may be larger
  int relinquished_ = 0;              // PTX line, 0: not
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_TENSOR_ALLOCATOR_H_

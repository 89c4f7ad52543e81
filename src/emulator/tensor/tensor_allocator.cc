#include "emulator/tensor/tensor_allocator.h"

#include <algorithm>

#include "emulator/base/fault.h"

namespace warploom::emulator {

std::optional<uint32_t> TensorAllocator::find(uint32_t used, uint32_t columns) {
  for (uint32_t column = 0; column + columns <= kTensorColumns; column += kUnit) {
    if ((used & units_of(column, columns)) == 0) return column;
  }
  return std::nullopt;
}

void TensorAllocator::check(const Request& request) const {
  const uint32_t columns = request.columns;
  if (columns < kUnit || columns > kTensorColumns || (columns & (columns - 1)) != 0) {
    fault("tcgen05.alloc of %u columns: their number must be a power of two from %u to %u", columns,
          kUnit, kTensorColumns);
  }
  if (relinquished_ != 0) {
    fault("tcgen05.alloc in a CTA that has given up the right to allocate "
          "(tcgen05.relinquish_alloc_permit, PTX line %d)",
          relinquished_);
  }
  if (columns > latest_) {
    fault(
        "tcgen05.alloc of %u columns after one of %u: later allocations of a CTA may not be larger",
        columns, latest_);
  }
}

void TensorAllocator::hold(uint32_t column, const Request& request) {
  used_ |= units_of(column, request.columns);
  ever_used_ |= used_;
  latest_ = request.columns;
  held_.push_back({column, request});
}

std::optional<uint32_t> TensorAllocator::allocate(const Request& request) {
  check(request);
  const std::optional<uint32_t> column = find(used_, request.columns);
  if (column) hold(*column, request);
  return column;
}

bool TensorAllocator::ask(const Request& request) {
  if (granted_) return false;
  if (asked_) return asked_->warp == request.warp;
  check(request);
  asked_ = request;
  return true;
}

bool TensorAllocator::agree(TensorAllocator& one, TensorAllocator& other) {
  if (!one.asked_ || !other.asked_) return false;
  if (one.asked_->columns != other.asked_->columns) {
    fault("the CTAs of a pair ask for %u and %u columns (PTX lines %d and %d); "
          "tcgen05.alloc.cta_group::2 needs the same number in both",
          one.asked_->columns, other.asked_->columns, one.asked_->line, other.asked_->line);
  }
  const std::optional<uint32_t> column = find(one.used_ | other.used_, one.asked_->columns);
  if (!column) return false;
  for (TensorAllocator* each : {&one, &other}) {
    each->hold(*column, *each->asked_);
    each->granted_ = each->held_.back();
    each->asked_.reset();
  }
  return true;
}

std::optional<uint32_t> TensorAllocator::take(uint32_t warp) {
  if (!granted_ || granted_->request.warp != warp) return std::nullopt;
  const uint32_t column = granted_->column;
  granted_.reset();
  return column;
}

void TensorAllocator::free(uint32_t address, uint32_t columns, uint32_t cta_group) {
  const auto found = std::find_if(held_.begin(), held_.end(),
                                  [=](const Held& held) { return held.column == address; });
  if (found == held_.end()) {
    fault("tcgen05.dealloc of the address 0x%x, where no allocation begins; the CTA holds %s",
          address, describe().c_str());
  }
  const Request& request = found->request;
  if (request.columns != columns || request.cta_group != cta_group) {
    fault("tcgen05.dealloc of %u columns at 0x%x with cta_group::%u; it allocated %u columns there "
          "with cta_group::%u (PTX line %d)",
          columns, address, cta_group, request.columns, request.cta_group, request.line);
  }
  used_ &= ~units_of(found->column, columns);
  held_.erase(found);
}

void TensorAllocator::relinquish(int line) {
  if (relinquished_ == 0) relinquished_ = line;
}

void TensorAllocator::check_exit() const {
  if (held_.empty()) return;
  fault("the CTA exits and holds %s of tensor memory; every tcgen05.alloc needs a tcgen05.dealloc",
        describe().c_str());
}

std::string TensorAllocator::describe() const {
  std::string result;
  for (const Held& held : held_) {
    result += format("%scolumns %u to %u (warp %u, PTX line %d)", result.empty() ? "" : ", ",
                     held.column, held.column + held.request.columns - 1, held.request.warp,
                     held.request.line);
  }
  return result.empty() ? "no columns" : result;
}

}  // namespace warploom::emulator

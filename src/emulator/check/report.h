// What the checker has found.

#ifndef WARPLOOM_EMULATOR_CHECK_REPORT_H_
#define WARPLOOM_EMULATOR_CHECK_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/base/fault.h"
#include "emulator/exec/machine/program.h"

namespace warploom::emulator {

enum class Finding : uint8_t {
  kDataRace,
  kMissingProxyFence,
  kMissingTensorMapFence,
  kUninitializedRead,
  kMbarrierMisuse,
  kMbarrierInitRace,
  kMbarrierLapped,
  kEarlyExit,
  kRegisterRace,       // wgmma registers
  kTensorMemory,
  kConstantMemory,     // ld.global.nc of what the kernel writes
  kNotStarted,         // shared memory of a CTA that may not have started
  kMissingGridWait,    // griddepcontrol.wait
  // What ends a launch, whether anything is checked or not.
  kOutOfBounds,
  kMisaligned,
  kBarrierMisuse,
  kIllegalDescriptor,
  kDeadlock,
  kLimit,
  kError,
};

// What a fault of this kind is reported as.
Finding finding_of(FaultKind kind);

// "data race" and so on.
const char* finding_name(Finding finding);

struct Report {
  Finding finding = Finding::kDataRace;
  const Op* first = nullptr;   // the instructions that it is about; the second may be absent
  const Op* second = nullptr;
  std::string text;
};

// The distinct reports of a cluster: one for each kind and pair of instructions.
class ReportLog {
 public:
  static constexpr std::size_t kMost = 10;

  // Whether a report of this kind about these instructions would be new; asked before the text is
  // made.
  bool is_new(Finding finding, const Op* first, const Op* second) const;
  void add(Report report);
  const std::vector<Report>& reports() const { return reports_; }

 private:
  std::vector<Report> reports_;
};

// Those of a launch. Clusters may execute in several threads; the order is that of the clusters.
class LaunchReports {
 public:
  // All that the cluster of this linear index has found.
  void add(uint32_t cluster, const ReportLog& log);
  std::vector<Report> distinct() const;

 private:
  std::mutex mutex_;
  std::map<uint32_t, std::vector<Report>> by_cluster_;
};

// The message of a launch with these findings and this problem, either of which may be empty.
std::string describe_findings(const std::vector<Report>& findings, const std::string& problem);

// [{"kind": "data race", "text": "..."}, ...]
std::string reports_json(const std::vector<Report>& reports);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_CHECK_REPORT_H_

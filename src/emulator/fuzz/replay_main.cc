// Executes inputs once each where there is no libFuzzer:
//
//   warploom_fuzz [--mutants COUNT SEED] FILE...
//
// and COUNT random changes of each. The name of what is executed is printed before, so that it is
// known of an input that ends the process.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "emulator/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size);

namespace {

// An input that takes longer is an error: SIGALRM ends the process.
constexpr unsigned kSeconds = 60;

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t count) { return random() % count; }

// Another number where one is, since sizes are what PTX is wrong about most.
void change_number(std::string& text, Random& random) {
  static constexpr const char* kNumbers[] = {
      "0",          "1",          "3",          "127",
      "4096",       "65537",      "2147483647", "2147483648",
      "4294967295", "4294967296", "4294967297", "576460752303423488",
      "-1",         "0x7fffffff", "0xffffffffffffffff", "9223372036854775808"};
  std::vector<std::size_t> places;
  for (std::size_t i = 1; i < text.size(); ++i) {
    bool digit = text[i] >= '0' && text[i] <= '9';
    bool before = text[i - 1] >= '0' && text[i - 1] <= '9';
    if (digit && !before) places.push_back(i);
  }
  if (places.empty()) return;
  const std::size_t at = places[below(random, places.size())];
  std::size_t end = text.find_first_not_of("0123456789", at);
  if (end == std::string::npos) end = text.size();
  text.replace(at, end - at, kNumbers[below(random, std::size(kNumbers))]);
}

void change_bytes(std::string& text, Random& random) {
  const std::size_t at = below(random, text.size());
  const std::size_t count = 1 + below(random, std::min<std::size_t>(text.size() - at, 24));
  const std::size_t kind = below(random, 3);
  if (kind == 0) {
    text[at] = static_cast<char>(random());
  } else if (kind == 1) {
    text.erase(at, count);
  } else {
    text.insert(below(random, text.size()), text.substr(at, count));
  }
}

std::string mutant_of(std::string text, Random& random) {
  for (std::size_t changes = 1 + below(random, 3); changes > 0 && !text.empty(); --changes) {
    if (random() % 2 == 0) {
      change_number(text, random);
    } else {
      change_bytes(text, random);
    }
  }
  return text;
}

void execute(const std::string& name, const std::string& input) {
  std::printf("%s\n", name.c_str());
  std::fflush(stdout);
  alarm(kSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  alarm(0);
}

}  // namespace

int main(int count, char** words) {
  int first = 1;
  unsigned long mutants = 0, seed = 0;
  if (count > 3 && std::string(words[1]) == "--mutants") {
    mutants = std::strtoul(words[2], nullptr, 10);
    seed = std::strtoul(words[3], nullptr, 10);
    first = 4;
  }
  for (int i = first; i < count; ++i) {
    std::ifstream file(words[i], std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    execute(words[i], input);
    Random random(seed + static_cast<unsigned long>(i));
    for (unsigned long mutant = 0; mutant < mutants; ++mutant) {
      execute(words[i] + std::string(" mutant ") + std::to_string(mutant),
              mutant_of(input, random));
    }
  }
  std::printf("%d inputs, %lu mutants of each\n", count - first, mutants);
  return 0;
}

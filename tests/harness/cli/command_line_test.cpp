// Tests of parsing the command line by declared options: the values that options take, the messages about wrong ones, and the
// help.
#include "harness/cli/command_line.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "harness/text/errors.h"
#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

class CommandLineTest : public testing::Test {
 protected:
  CommandLineTest() {
    line_.program().add("--verbose", &verbose_, "say more");
    command_.add("file", &file_, "a file", {.required = true, .completion = Completion::files});
    command_.add("more", &more_, "other files");
    command_.add("--count", &count_, "how often", {.short_name = "-n", .unit = "times", .min = 1, .max = 9});
    command_.add("--share", &share_, "how much");
    command_.add("--size", &size_, "how large", {.default_text = "as large as it must be", .needs = "--share"});
    command_.add("--colour", &colour_, "what it looks like", {.choices = {"red", "blue"}});
    command_.add("--lengths", &lengths_, "how long", {.separator = ','});
    command_.add("--name", &names_, "what it is called", {.placeholder = "NAME"});
    command_.add("--quiet", &quiet_, "say nothing", {.short_name = "-q"});
    command_.add("--loud", &loud_, "shout", {.excludes = "--quiet"});
    command_.add(
        "--twice",
        [this](const std::string& text) {
          if (text != "yes") throw std::invalid_argument("'" + text + "' is not yes");
          ++taken_;
        },
        "said twice");
    command_.add("--old", [this] { colour_ = "blue"; }, "a former name", {.hidden = true});
    command_.add_example("paint wall --count 2", "paints a wall twice");
  }

  CommandLine::Choice parse(std::vector<const char*> words) {
    words.insert(words.begin(), "program");
    return line_.parse(int(words.size()), words.data());
  }
  std::string refused(const std::vector<const char*>& words) {
    return message_of<UsageError>([&] { parse(words); });
  }

  bool verbose_ = false, quiet_ = false, loud_ = false;
  std::string file_, colour_ = "red";
  std::vector<std::string> more_, names_ = {"a", "b"};
  int count_ = 3, taken_ = 0;
  double share_ = 0.5;
  std::optional<double> size_;
  std::vector<int> lengths_ = {1, 2};
  CommandLine line_{"program", "Paints."};
  Command& command_ = line_.add_command("paint", "paint a file");
  Command& other_ = line_.add_command("wash", "wash the brush");
};

TEST_F(CommandLineTest, ParsesValuesOfEveryType) {
  const auto choice =
      parse({"paint", "wall",        "-n",     "2", "--share=0.25", "--size",  "1e3", "--colour", "blue", "--lengths",
             "4,5",   "--lengths=6", "--name", "c", "--loud",       "--twice", "yes", "door",     "roof", "--verbose"});
  EXPECT_EQ(choice.command, &command_);
  EXPECT_FALSE(choice.help);
  EXPECT_EQ(file_, "wall");
  EXPECT_EQ(more_, (std::vector<std::string>{"door", "roof"}));
  EXPECT_EQ(count_, 2);
  EXPECT_EQ(share_, 0.25);
  EXPECT_EQ(size_, 1000);
  EXPECT_EQ(colour_, "blue");
  EXPECT_EQ(lengths_, (std::vector<int>{4, 5, 6}));
  EXPECT_EQ(names_, std::vector<std::string>{"c"});
  EXPECT_TRUE(loud_ && verbose_ && !quiet_);
  EXPECT_EQ(taken_, 1);
}

TEST_F(CommandLineTest, OptionsThatAreNotGivenKeepTheirDefaults) {
  parse({"--verbose", "paint", "wall"});
  EXPECT_EQ(count_, 3);
  EXPECT_EQ(lengths_, (std::vector<int>{1, 2}));
  EXPECT_FALSE(size_);
  EXPECT_EQ(parse({"wash"}).command, &other_);
  EXPECT_EQ(parse({}).command, nullptr);
}

TEST_F(CommandLineTest, HiddenOptionsAreParsed) {
  parse({"paint", "wall", "--old"});
  EXPECT_EQ(colour_, "blue");
}

TEST_F(CommandLineTest, ErrorsNameTheOptionAndWhatWasExpected) {
  EXPECT_EQ(refused({"paint", "wall", "--count", "0"}), "--count = '0', expected a whole number from 1 to 9");
  EXPECT_EQ(refused({"paint", "wall", "-n", "10"}), "--count = '10', expected a whole number from 1 to 9");
  EXPECT_EQ(refused({"paint", "wall", "--count", "2x"}), "--count = '2x', expected a whole number from 1 to 9");
  EXPECT_EQ(refused({"paint", "wall", "--share", "inf"}), "--share = 'inf', expected a number");
  EXPECT_EQ(refused({"paint", "wall", "--share", ""}), "--share = '', expected a number");
  EXPECT_EQ(refused({"paint", "wall", "--lengths", "1,,2"}), "--lengths = '', expected a whole number");
  EXPECT_EQ(refused({"paint", "wall", "--colour", "green"}), "--colour = 'green', expected one of red, blue");
  EXPECT_EQ(refused({"paint", "wall", "--twice", "no"}), "--twice: 'no' is not yes");
  EXPECT_EQ(refused({"paint", "wall", "--count", "2", "--count", "3"}), "--count is given more than once");
  EXPECT_EQ(refused({"paint", "wall", "--count"}), "--count needs a value");
  EXPECT_EQ(refused({"paint", "wall", "--size", "3"}), "--size can only be given with --share");
  EXPECT_EQ(refused({"paint", "wall", "--loud", "-q"}), "--loud cannot be given with --quiet");
  EXPECT_EQ(refused({"paint"}), "paint needs the argument 'file'; `program paint --help` explains it");
  EXPECT_EQ(refused({"wash", "wall"}), "wash does not take 'wall'; `program wash --help` says what it takes");
}

TEST_F(CommandLineTest, UnknownCommandsAndOptionsAreErrorsThatSuggestTheNearest) {
  EXPECT_EQ(refused({"pant", "wall"}), "unknown command 'pant'; did you mean 'paint'?; known: paint, wash");
  const auto option = refused({"paint", "wall", "--color=red"});
  EXPECT_CONTAINS(option, "unknown option '--color'; did you mean '--colour'?; known: --verbose, --count");
  EXPECT_EQ(option.find("--old"), std::string::npos);
  EXPECT_CONTAINS(refused({"wash", "--count=2"}), "unknown option '--count'");
  EXPECT_CONTAINS(refused({"paint", "wall", "-x"}), "unknown option '-x'");
}

TEST_F(CommandLineTest, HelpCanBeAskedForTheProgramOrACommand) {
  EXPECT_TRUE(parse({"--help"}).help);
  EXPECT_EQ(parse({"--help"}).command, nullptr);
  const auto choice = parse({"paint", "-h"});
  EXPECT_TRUE(choice.help);
  EXPECT_EQ(choice.command, &command_);
}

TEST_F(CommandLineTest, HelpOfACommand) {
  EXPECT_EQ(line_.help(&command_),
            R"(Usage: program paint [options] file [more...]

Paint a file.

Arguments:
  file                      a file
  more                      other files

Options:
  -n,--count N              how often (in times; 1 to 9; default: 3)
  --share NUMBER            how much (default: 0.5)
  --size NUMBER             how large (only with --share; default: as large as it must be)
  --colour red|blue         what it looks like (default: red)
  --lengths N               how long (several are separated by ','; default: 1,2)
  --name NAME               what it is called (can be given more than once; default: a b)
  -q,--quiet                say nothing
  --loud                    shout (not with --quiet)
  --twice VALUE             said twice
  -h,--help                 print this help and exit

Examples:
  program paint wall --count 2
      paints a wall twice
)");
}

TEST_F(CommandLineTest, HelpOfTheProgram) {
  EXPECT_EQ(line_.help(nullptr),
            R"(Usage: program COMMAND [options]

Paints.

Commands:
  paint                     paint a file
  wash                      wash the brush

Options:
  --verbose                 say more
  -h,--help                 print this help and exit
)");
}

TEST_F(CommandLineTest, LongDescriptionsAreWrappedInTheHelp) {
  const std::string x(60, 'x'), y(60, 'y'), indent(28, ' ');
  other_.add("--long-name-of-an-option", &file_, fmt::format("{} {}", x, y), {.placeholder = "FILE"});
  EXPECT_CONTAINS(line_.help(&other_), fmt::format("  --long-name-of-an-option FILE\n{0}{1}\n{0}{2}\n", indent, x, y));
}

}  // namespace
}  // namespace attnbench

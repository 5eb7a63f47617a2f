#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint.h"
#include "files.h"

namespace digits {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using tutti::ErrorKind;

const auto example = [] {
  return Checkpoint{{{3, 2, 2}, 17, 64, 0.05f, 0.9f},
                    12,
                    {1.5f, -0.0f, 3e-42f, 4.0f},
                    {0.25f, 6.0f, 7.0f, -8.0f}};
};

class CheckpointFile : public testing::Test {
 protected:
  std::string message(ErrorKind kind, const Recipe& recipe = example().recipe) {
    return message_of(kind, [&] { (void)load(path, recipe); });
  }

  Folder folder;
  const std::string path = folder / "state";
};

TEST_F(CheckpointFile, GivesBackWhatWasSavedAndReplacesTheOneBefore) {
  Checkpoint checkpoint = example();
  for (const std::uint64_t epoch : {12u, 13u}) {
    checkpoint.epochs_done = epoch;
    save(path, checkpoint);
    const Checkpoint loaded = load(path, checkpoint.recipe);
    EXPECT_EQ(loaded.epochs_done, epoch);
    EXPECT_EQ(loaded.values, checkpoint.values);
    EXPECT_EQ(loaded.velocity, checkpoint.velocity);
  }
  EXPECT_EQ(folder.files(), 1u) << "an unfinished file was left";
}

TEST_F(CheckpointFile, CutShortAnywhereIsAnErrorThatSaysSo) {
  save(path, example());
  const std::string whole = read_file(path);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_file(path, std::string_view(whole).substr(0, size));
    EXPECT_THAT(message(ErrorKind::corrupt), AllOf(HasSubstr(path), HasSubstr("cut short")))
        << size << " of " << whole.size() << " bytes";
  }
}

TEST_F(CheckpointFile, EveryDamagedByteIsNoticed) {
  save(path, example());
  const std::string whole = read_file(path);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
    write_file(path, bytes);
    EXPECT_THROW((void)load(path, example().recipe), tutti::Error) << "byte " << at;
  }
  write_file(path, whole + "x");
  EXPECT_THAT(message(ErrorKind::corrupt), HasSubstr("damaged"));
}

TEST_F(CheckpointFile, OfAnotherShapeOrRecipeIsAnErrorThatSaysWhatDiffers) {
  save(path, example());
  Recipe recipe = example().recipe;
  recipe.widths = {3, 5, 2};
  EXPECT_THAT(message(ErrorKind::usage, recipe),
              AllOf(HasSubstr(path), HasSubstr("layers of 3-2-2, this run 3-5-2")));
  recipe = example().recipe;
  recipe.seed = 18;
  recipe.batch = 32;
  EXPECT_THAT(message(ErrorKind::usage, recipe),
              AllOf(HasSubstr("seed 17, this run 18; batch 64, this run 32")));
}

TEST_F(CheckpointFile, FileOfAnotherKindOrVersionOrThatIsMissingIsAnError) {
  EXPECT_THAT(message(ErrorKind::usage), AllOf(HasSubstr(path), HasSubstr("No such file")));
  write_file(path, "something else entirely");
  EXPECT_THAT(message(ErrorKind::usage), HasSubstr("not a checkpoint"));
  save(path, example());
  std::string bytes = read_file(path);
  bytes[8] = 9;
  write_file(path, bytes);
  EXPECT_THAT(message(ErrorKind::usage), HasSubstr("version 9, this program reads version 1"));
}

TEST_F(CheckpointFile, HeaderThatAnnouncesTerabytesCostsNoMemory) {
  save(path, example());
  std::string bytes = read_file(path);
  bytes[15] = '\x7f';  // the most significant byte of the number of widths
  write_file(path, bytes);
  EXPECT_THAT(message(ErrorKind::corrupt), HasSubstr("cut short"));
}

TEST_F(CheckpointFile, ThatCannotBeWrittenLeavesTheOldOneAndNothingElse) {
  EXPECT_THAT(
      message_of(ErrorKind::unavailable, [&] { save(folder / "no/such/folder/state", example()); }),
      HasSubstr("no/such/folder"));
  std::filesystem::create_directory(path);  // a folder cannot be replaced by a file
  EXPECT_THAT(message_of(ErrorKind::unavailable, [&] { save(path, example()); }), HasSubstr(path));
  EXPECT_EQ(folder.files(), 1u);
}

}  // namespace
}  // namespace digits

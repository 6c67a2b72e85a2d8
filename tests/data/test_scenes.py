"""Made-up scenes, Visual Genome's layout in a tiny made-up folder, and reading JSON in pieces."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fourviews import data
from fourviews.data.files.json_stream import array_of_objects

# --- generated -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many():
    return data.generated_scenes(1500, seed=3)


def test_kinds_and_predicates_have_a_long_tail(many):
    assert len(many.kind_names) >= 20 and len(many.predicate_names) == 15
    for counts in (
        torch.bincount(many.kinds[many.kinds >= 0], minlength=24),
        many.truth.sum((0, 1, 2)),
    ):
        ranked = counts.sort(descending=True).values.double()
        assert int(ranked[-1]) > 20
        assert float(ranked[: len(ranked) // 4].sum() / ranked.sum()) > 0.45
        assert float(ranked[0] / ranked[-1]) > 8


def test_relations_obey_kinds_and_boxes(many):
    names = many.predicate_names
    kind = [many.kind_names[k] for k in range(24)]
    scene, a, b, p = many.truth.nonzero(as_tuple=True)
    wearing = p == names.index("wearing")
    worn = {kind[k] for k in many.kinds[scene[wearing], b[wearing]].tolist()}
    assert worn == {"shirt", "hat", "jacket"}
    top = many.boxes[..., 1] + many.boxes[..., 3] / 2
    for name, sign in (("above", -1), ("under", 1)):
        chosen = p == names.index(name)
        drop = top[scene[chosen], a[chosen]] - top[scene[chosen], b[chosen]]
        assert float((sign * drop > 0).double().mean()) > 0.9
    right_and_bottom = many.boxes[..., :2] + many.boxes[..., 2:]
    assert float(many.boxes.min()) >= 0 and float(right_and_bottom.max()) <= 1 + 1e-6


@pytest.mark.parametrize("writers", ["uniform", "salient"])
@pytest.mark.parametrize("left_out", [0.5, 0.7, 0.9])
def test_the_share_that_is_left_out(writers, left_out):
    scenes = data.generated_scenes(800, seed=1, left_out=left_out, writers=writers)
    assert not bool((scenes.written & ~scenes.truth).any())
    held = int(scenes.truth.sum())
    share = 1 - float(scenes.written.sum()) / held
    assert abs(share - left_out) < 4 * math.sqrt(left_out * (1 - left_out) / held)


def test_uniform_writers_write_every_predicate_alike_and_salient_ones_do_not():
    spread = {}
    for writers in ("uniform", "salient"):
        scenes = data.generated_scenes(2000, seed=2, writers=writers)
        held = scenes.truth.sum((0, 1, 2)).double()
        share = scenes.written.sum((0, 1, 2)) / held
        spread[writers] = float(((share - 0.3).abs() / (0.3 * 0.7 / held).sqrt()).max())
    assert spread["uniform"] < 4 < 8 < spread["salient"]


def test_scenes_come_from_the_seed_and_obey_one_law():
    one, same, other = (data.generated_scenes(400, seed=s) for s in (0, 0, 1))
    assert torch.equal(one.truth, same.truth) and torch.equal(one.written, same.written)
    assert not torch.equal(one.kinds, other.kinds)
    # The habits are the same: how often «man wearing shirt» holds does not depend on the seed.
    shares = []
    for scenes in (data.generated_scenes(3000, seed=s) for s in (4, 5)):
        pair = (scenes.kinds[:, :, None] == 0) & (scenes.kinds[:, None, :] == 3)
        shares.append(float(scenes.truth[pair][:, 4].double().mean()))
    assert min(shares) > 0.05 and abs(shares[0] - shares[1]) < 0.1


def test_no_scene_and_no_relation_left_out():
    none = data.generated_scenes(0)
    assert len(none) == 0 and none.truth.shape == (0, 9, 9, 15)
    assert len(data.generated_scenes(0, writers="salient")) == 0
    every = data.generated_scenes(20, left_out=0.0, max_objects=4)
    assert torch.equal(every.written, every.truth) and bool((every.kinds >= 0).all())
    assert "4 objects" in repr(every) and "in place of Visual Genome" in repr(every)
    some = every[torch.arange(20) % 2 == 0]
    assert len(some) == 10 and torch.equal(some.kinds, every.kinds[::2])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n": -1}, "n is -1"),
        ({"n": 2.0}, "n is 2.0"),
        ({"seed": True}, "seed is True"),
        ({"max_objects": 3}, "max_objects is 3; it needs to be an integer of at least 4"),
        ({"left_out": 1.0}, "left_out is 1.0"),
        ({"left_out": math.nan}, "left_out is nan"),
        ({"left_out": "half"}, "left_out is 'half'"),
        ({"writers": "lazy"}, "writers is 'lazy'"),
    ],
)
def test_bad_wishes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        data.generated_scenes(**{"n": 5, **options})


def test_scene_sets_refuse_what_does_not_fit(many):
    small = many[:3]
    loop = small.written.clone()
    loop[0, 1, 1, 0] = True
    false = small.truth.clone()
    false[small.truth] = False
    for change, message in (
        ({"kinds": small.kinds.int()}, "kinds has shape"),
        ({"kinds": small.kinds[0]}, "kinds has shape"),
        ({"kinds": small.kinds.clamp_min(0) + 24}, "they need to be -1 or indices of 24"),
        ({"boxes": small.boxes[:, :, :3]}, "boxes has shape"),
        ({"boxes": small.boxes / 0}, "boxes has shape"),
        ({"written": small.written[..., :3]}, "written has shape"),
        ({"written": small.written.int()}, "written has shape"),
        ({"written": loop}, "pairs that do not exist"),
        ({"truth": false}, "not in truth"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(small, **change)
    with pytest.raises(ValueError, match="rows is 1"):
        small[1]


# --- Visual Genome -------------------------------------------------------------------------------


def thing(number, name, x=10, y=20, w=30, h=40, **more):
    return {"object_id": number, "x": x, "y": y, "w": w, "h": h, "synsets": [], **name, **more}


@pytest.fixture
def genome(alone):
    """Twenty pictures: a man wearing a hat near a dog; one of them has nothing to say."""
    folder = alone / "data" / "visual_genome"
    folder.mkdir()
    files = {"image_data": [], "objects": [], "relationships": []}
    for i in range(1, 21):
        man = thing(10 * i, {"names": ["Man "]}, merged_object_ids=[10 * i + 5])
        hat = thing(10 * i + 1, {"names": ["hat"]}, x=-5, w=1000)
        dog = thing(10 * i + 2, {"names": ["hound"]}, x=50)
        files["image_data"].append(
            {"image_id": i, "width": 100, "height": 200, "url": "", "coco_id": None}
        )
        rare = [thing(10 * i + 3, {"names": [f"rarity {i}"]})]
        files["objects"].append({"image_id": i, "objects": [dog, man, hat, *rare]})
        relations = [
            {"predicate": "WEARING", "subject": man, "object": hat, "relationship_id": 1},
            {"predicate": "wearing ", "subject": man, "object": hat, "relationship_id": 2},
            # The merged man, and the names of the other version.
            {
                "predicate": "next to",
                "subject": thing(10 * i + 5, {"name": "man"}),
                "object": thing(10 * i + 2, {"name": "hound"}),
                "relationship_id": 3,
            },
            {"predicate": "near", "subject": man, "object": man, "relationship_id": 4},
        ]
        files["relationships"].append({"image_id": i, "relationships": relations if i != 7 else []})
    (folder / "object_alias.txt").write_text("dog,hound,puppy\n")
    (folder / "relationship_alias.txt").write_text("near,next to\n")

    def write():
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        return folder

    write()
    return files, write


def test_visual_genome(genome):
    train, test = data.visual_genome("train", max_objects=3), data.visual_genome("test")
    assert len(train) + len(test) == 19 and {len(train), len(test)} <= {13, 14, 5, 6}
    assert train.truth is None and test.written.shape == (len(test), 20, 20, 2)
    assert train.source.kind == "folder" and "Visual Genome" in str(train.source)
    assert train.predicate_names == test.predicate_names == ("near", "wearing")
    assert train.kind_names[:3] == ("dog", "hat", "man")
    assert all(name.startswith("rarity") for name in train.kind_names[3:])
    for i in range(len(train)):
        names = [train.kind_names[k] for k in train.kinds[i]]
        assert sorted(names) == ["dog", "hat", "man"]  # the rarity has no relation
        row = {name: names.index(name) for name in names}
        listed = {tuple(r) for r in train.written[i].nonzero().tolist()}
        assert listed == {(row["man"], row["hat"], 1), (row["man"], row["dog"], 0)}
        assert train.boxes[i, row["man"]].tolist() == pytest.approx([0.1, 0.1, 0.3, 0.2])
        assert train.boxes[i, row["hat"]].tolist() == pytest.approx([0, 0.1, 1, 0.2])
    few = data.visual_genome("train", n_kinds=2, n_predicates=1, max_scenes=4)
    assert few.kind_names == ("dog", "hat") and few.predicate_names == ("near",)
    assert len(few) == 0  # dog and hat are not near each other
    assert len(data.visual_genome("train", max_scenes=4)) in (3, 4)
    one, other = (data.visual_genome("train", seed=s, max_scenes=3) for s in (0, 1))
    assert one.kind_names != other.kind_names  # the rarities of other pictures


def damage(kind):
    def change(files):
        if kind == "no size":
            del files["image_data"][0]["width"]
        elif kind == "zero size":
            files["image_data"][0]["height"] = 0
        elif kind == "twice":
            files["image_data"].append(files["image_data"][0])
        elif kind == "text id":
            files["objects"][0]["image_id"] = "1"
        elif kind == "huge box":
            files["objects"][2]["objects"][0]["x"] = 10**400
        elif kind == "no name":
            files["objects"][2]["objects"][0]["names"] = []
        elif kind == "no list":
            files["objects"][2]["objects"] = {"a": 1}
        elif kind == "no subject":
            del files["relationships"][2]["relationships"][0]["subject"]
        elif kind == "no predicate":
            files["relationships"][2]["relationships"][0]["predicate"] = None
        elif kind == "no array":
            files["relationships"] = {"image_id": 1}

    return change


@pytest.mark.parametrize(
    "kind, message",
    [
        ("no size", "image_data.json, picture 1: 'width' is 'None'"),
        ("zero size", "picture 1: it has 100×0 pixels"),
        ("twice", "picture 1 is listed twice"),
        ("text id", "objects.json: 'image_id' is '1'; it needs to be an integer"),
        ("huge box", "objects.json, picture 3: 'x' is '1000"),
        ("no name", "picture 3: 'name' is 'None'; it needs to be a text"),
        ("no list", "picture 3: 'objects' is .* a list of objects"),
        ("no subject", "relationships.json, picture 3: a relation needs an object under 'subject'"),
        ("no predicate", "picture 3: 'predicate' is 'None'"),
        ("no array", "relationships.json has '{' where it needs an array"),
    ],
)
def test_other_layouts_are_refused_with_file_and_picture(genome, kind, message):
    files, write = genome
    damage(kind)(files)
    write()
    with pytest.raises(ValueError, match=message):
        data.visual_genome("train", seed=0)


def test_visual_genome_is_nowhere_or_incomplete(alone, genome):
    _, write = genome
    (write() / "objects.json").unlink()
    with pytest.raises(ValueError, match="visual_genome needs to hold objects.json"):
        data.visual_genome()
    (alone / "data" / "visual_genome").rename(alone / "data" / "other")
    with pytest.raises(data.DataNotFoundError, match="the folder visual_genome/"):
        data.visual_genome()
    for options, message in (
        ({"split": "val"}, "split is 'val'"),
        ({"n_kinds": 0}, "n_kinds is 0"),
        ({"max_scenes": 1.5}, "max_scenes is 1.5"),
        ({"max_objects": 1}, "max_objects is 1"),
    ):
        with pytest.raises(ValueError, match=message):
            data.visual_genome(**options)


# --- JSON in pieces ------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 2, 7, 1 << 20])
def test_objects_are_read_whatever_the_pieces(tmp_path, monkeypatch, piece):
    monkeypatch.setattr("fourviews.data.files.json_stream._PIECE", piece)
    rng = np.random.default_rng(0)
    wanted = [
        {"é]},{": 'a\\"[]{},', "list": [1, -2.5e3, None, {"deep": [{}] * int(n)}], "n": int(n)}
        for n in rng.integers(0, 6, 9)
    ]
    file = tmp_path / "a.json"
    for content in (wanted, [], wanted[:1]):
        for indent in (None, 2):
            file.write_text(" \n" + json.dumps(content, indent=indent) + "\n ", encoding="utf-8")
            assert list(array_of_objects(file)) == content


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "ends too early"),
        ("[", "ends too early"),
        ('[{"a": 1}', "ends too early"),
        ('[{"a": 1},', "ends too early"),
        ('[{"a": 1', "damaged"),
        ('[{"a": 1},]', "has ']'"),
        ('[{"a": 1} {"b": 2}]', "has '{'"),
        ("[1, 2]", "has '1'"),
        ('{"a": 1}', "has '{'"),
        ("[] []", r"has '\['"),
        ('[{"a": NaN}]', "NaN is no number"),
        ('[{"a": ' + "[" * 100_000 + "]" * 100_000 + "}]", "nested too deeply"),
    ],
)
def test_damaged_arrays_are_refused(tmp_path, text, message):
    file = tmp_path / "a.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        list(array_of_objects(file))


def test_too_large_an_object_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fourviews.data.files.json_stream._PIECE", 16)
    file = tmp_path / "a.json"
    file.write_text(json.dumps([{"a": "x" * 5000}]))
    assert len(list(array_of_objects(file))) == 1
    with pytest.raises(ValueError, match="more than 1000 characters"):
        list(array_of_objects(file, max_object=1000))

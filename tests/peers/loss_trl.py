"""What TRL and torch answer where challenge E's losses are compared with theirs.

    python3 tests/peers/loss_trl.py          prints what is kept as book/src/results/loss-torch.txt
    python3 tests/peers/loss_trl.py keep     writes tests/tests/workbook/chunks/trl.json, which the tests read

Needs torch and trl. ORPO's loss is that of `ORPOTrainer`, run on logits that are a product; the policies' losses are
`GRPOTrainer`'s, run on given log-probabilities: both are called as they stand, on trainers that were not initialised.
Everything else is computed with torch alone, in f64 where no other type is named, on one thread.
"""

import collections
import contextlib
import io
import json
import pathlib
import re
import sys
import types

import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).parents[2]
KEPT = ROOT / "tests" / "tests" / "workbook" / "chunks" / "trl.json"
IGNORED = -100


def numbers(tensor):
    return tensor.detach().double().flatten().tolist()


# ORPO ------------------------------------------------------------------------------------------------------------


def orpo_problem():
    """Two pairs, the chosen ones first; prompts of unequal length, padding at the end."""
    torch.manual_seed(1)
    answers, length, width, vocab = 4, 7, 3, 9
    prompts, ends = torch.tensor([2, 3, 2, 3]), torch.tensor([6, 7, 5, 6])
    at = torch.arange(length)
    return {
        "ids": torch.randint(0, vocab, (answers, length)),
        "attends": (at < ends[:, None]).long(),
        "answers": (at >= prompts[:, None]) & (at < ends[:, None]),
        "hidden": torch.randn(answers, length, width, dtype=torch.float64),
        "weight": torch.randn(vocab, width, dtype=torch.float64),
        "beta": 0.3,
    }


def trl_orpo(problem):
    """TRL's loss with its gradients, and its likelihood term alone."""
    from trl.experimental.orpo.orpo_trainer import ORPOTrainer

    trainer = object.__new__(ORPOTrainer)
    trainer.is_encoder_decoder, trainer.aux_loss_enabled, trainer.padding_value = False, False, 0
    trainer.beta, trainer.accelerator = problem["beta"], types.SimpleNamespace(device="cpu")
    hidden, weight = (problem[name].clone().requires_grad_() for name in ["hidden", "weight"])
    model = lambda *_, **__: types.SimpleNamespace(logits=hidden @ weight.t())
    labels = torch.where(problem["answers"], problem["ids"], IGNORED)
    parts = {"input_ids": problem["ids"], "attention_mask": problem["attends"], "labels": labels}
    batch = {}
    for name, part in parts.items():
        batch[f"chosen_{name}"], batch[f"rejected_{name}"] = part.chunk(2)
    chosen, rejected, _, _, likelihood = trainer.concatenated_forward(model, batch)
    loss = likelihood - trainer.odds_ratio_loss(chosen, rejected)[0].mean()
    loss.backward()
    return loss, likelihood, hidden.grad, weight.grad


def of_answers(problem):
    """The mean of -ln p over the tokens of the chosen answers alone."""
    log_p = F.log_softmax(problem["hidden"] @ problem["weight"].t(), -1)[:, :-1]
    log_p = log_p.gather(-1, problem["ids"][:, 1:, None])[..., 0]
    mask = problem["answers"][:, 1:]
    chosen = log_p.shape[0] // 2
    return -log_p[:chosen][mask[:chosen]].mean()


# Policies --------------------------------------------------------------------------------------------------------

LOSSES = ["grpo", "bnpo", "dapo", "dr_grpo"]


def policy_problem():
    """Four completions of 1 to 5 tokens, two in each of two batches that share an update."""
    torch.manual_seed(2)
    sequences, length = 4, 5
    ends = torch.tensor([5, 1, 2, 1])
    old = -torch.rand(sequences, length, dtype=torch.float64) * 3
    moved = lambda: old + 0.4 * torch.randn(sequences, length, dtype=torch.float64)
    return {
        "log_p": moved(),
        "old": old,
        "reference": moved(),
        "advantages": torch.tensor([1.2, -0.7, -0.9, 0.4], dtype=torch.float64),
        "mask": (torch.arange(length) < ends[:, None]).double(),
        "beta": 0.04,
        "low": 0.2,
        "high": 0.28,
        "batches": 2,
    }


def trl_policy(problem, loss_type, batches):
    """What TRL adds up over the batches of one update, and its gradient for the log-probabilities."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    log_p = problem["log_p"].clone().requires_grad_()
    alike = lambda tensor, **_: tensor
    accelerator = types.SimpleNamespace(
        num_processes=1, gather=alike, gather_for_metrics=alike, reduce=alike, sync_gradients=True
    )
    losses = []
    for rows in torch.arange(len(log_p)).chunk(batches):
        part = log_p[rows]
        arguments = types.SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=batches)
        trainer = types.SimpleNamespace(
            args=arguments,
            accelerator=accelerator,
            aux_loss_enabled=False,
            top_entropy_quantile=1.0,
            off_policy_mask_threshold=None,
            importance_sampling_level="token",
            beta=problem["beta"],
            epsilon_low=problem["low"],
            epsilon_high=problem["high"],
            loss_type=loss_type,
            use_vllm=False,
            vllm_importance_sampling_correction=False,
            max_completion_length=log_p.shape[1],
            current_gradient_accumulation_steps=batches,
            model=types.SimpleNamespace(training=True),
            _entropy_bonus_enabled=False,
            _metrics={"train": collections.defaultdict(list)},
            _get_per_token_logps_and_entropies=lambda *_, **__: (part, torch.zeros_like(part), None),
        )
        none = torch.zeros(len(rows), 0, dtype=torch.long)
        mask = problem["mask"]
        inputs = {
            "prompt_ids": none,
            "prompt_mask": none,
            "completion_ids": torch.zeros_like(part, dtype=torch.long),
            "completion_mask": mask[rows],
            "advantages": problem["advantages"][rows],
            "old_per_token_logps": problem["old"][rows],
            "ref_per_token_logps": problem["reference"][rows],
            "num_items_in_batch": mask.sum(),
        }
        losses.append(GRPOTrainer._compute_loss(trainer, None, inputs))
    loss = sum(losses)
    loss.backward()
    return loss, log_p.grad


# What torch answers ------------------------------------------------------------------------------------------------


def surrogate(log_p, old, advantage):
    ratio = torch.exp(log_p - old)
    return -torch.min(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage)


def masked_infinity():
    """A token whose mask is 0 and whose old log-probability is minus infinity."""
    print("a masked token, ln p of minus infinity when it was sampled; the token beside it counts (f32)")
    for advantage in [1.0, -1.0]:
        for replaced in [False, True]:
            log_p = torch.tensor([-1.0, -2.0], requires_grad=True)
            old, mask = torch.tensor([-1.1, -torch.inf]), torch.tensor([1.0, 0.0])
            if replaced:
                old = torch.where(mask == 0, log_p.detach(), old)
            loss = (surrogate(log_p, old, advantage) * mask).sum()
            loss.backward()
            how = "replaced first" if replaced else "multiplied"
            found = [f"{g:.4f}" for g in log_p.grad.tolist()]
            print(f"  A = {advantage:+.0f}, {how:<14}  loss {loss.item():8.4f}  gradients {', '.join(found)}")


def mean_of_nothing():
    logits = torch.randn(2, 3, requires_grad=True)
    labels = torch.full((2,), IGNORED)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    print("cross entropy of two rows, both ignored (f32)")
    print(f"  mean {loss.item()}, largest gradient {logits.grad.abs().max().item()}")
    total = F.cross_entropy(logits, labels, reduction="sum")
    print(f"  sum {total.item()}, over 0 items {(total / torch.tensor(0)).item()}")


def rounding():
    """One logit just below the middle of two numbers of bf16, the others just above it, and the other way round."""
    print("probability of one entry of 1,000 whose logits are rounded to bf16, over the one of exact logits")
    for name, sign in [("up", 1), ("down", -1)]:
        z = torch.full((1000,), 20.0 + 0.0625 + sign * 1e-6, dtype=torch.float64)
        z[0] = 20.0 + 0.0625 - sign * 1e-6
        got, want = (F.softmax(z, 0)[0] for z in [z.bfloat16().double(), z])
        print(f"  others rounded {name:<5} {(got / want).item():.4f}")


def in_one_pass(name, loss_of, log_p_of, hidden, weight):
    """The hidden states' gradient by autograd, and by rows that are kept unscaled and multiplied by their seeds."""
    whole = hidden.clone().requires_grad_()
    loss_of(log_p_of(whole, weight)).backward()
    kept, values = [], []
    for rows in torch.arange(len(hidden)).chunk(5):
        part = hidden[rows].clone().requires_grad_()
        log_p = log_p_of(part, weight, rows)
        kept.append(torch.autograd.grad(log_p.sum(), part)[0])
        values.append(log_p.detach())
    values = torch.cat(values).requires_grad_()
    loss_of(values).backward()
    found = torch.cat(kept) * values.grad[:, None]
    far = (found - whole.grad).abs().max() / whole.grad.abs().max()
    print(f"  {name:<5} {far.item():.1e}")


def one_pass():
    torch.manual_seed(3)
    answers, length, width, vocab = 4, 6, 8, 50
    hidden = torch.randn(answers * length, width, dtype=torch.float64)
    weight = torch.randn(vocab, width, dtype=torch.float64)
    labels = torch.randint(0, vocab, (answers * length,))
    noise = torch.randn(answers * length, dtype=torch.float64)
    reference = -20 * torch.rand(answers, dtype=torch.float64)
    advantages = torch.tensor([1.0, -1.0, 0.5, -0.5], dtype=torch.float64)

    def log_p_of(hidden, weight, rows=slice(None)):
        return F.log_softmax(hidden @ weight.t(), -1).gather(-1, labels[rows][:, None])[:, 0]

    old = log_p_of(hidden, weight) + 0.3 * noise

    def dpo(log_p):
        apart = log_p.view(answers, length).sum(1) - reference
        chosen, rejected = apart.chunk(2)
        return -F.logsigmoid(0.1 * (chosen - rejected)).mean()

    def gspo(log_p):
        ratio = torch.exp((log_p - old).view(answers, length).mean(1))
        return -torch.min(ratio * advantages, torch.clamp(ratio, 0.5, 2.0) * advantages).mean()

    print("frozen head, 24 rows in 5 chunks that split sequences: hidden states' gradient of one pass, whose rows are")
    print("kept without seed and multiplied by it at the end, against autograd's; largest difference over largest")
    in_one_pass("DPO", dpo, log_p_of, hidden, weight)
    in_one_pass("GSPO", gspo, log_p_of, hidden, weight)


def tied():
    torch.manual_seed(4)
    ids, labels = torch.randint(0, 9, (6,)), torch.randint(0, 9, (6,))
    shared = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    F.cross_entropy(F.embedding(ids, shared) @ shared.t(), labels).backward()
    apart = [shared.detach().clone().requires_grad_() for _ in range(2)]
    F.cross_entropy(F.embedding(ids, apart[0]) @ apart[1].t(), labels).backward()
    far = (shared.grad - apart[0].grad - apart[1].grad).abs().max().item()
    print("one matrix as embedding and as head: its gradient against the sum of the two of untied copies")
    print(f"  largest difference {far:.1e}")


def main():
    torch.set_num_threads(1)
    orpo, policy = orpo_problem(), policy_problem()
    with contextlib.redirect_stdout(io.StringIO()):
        loss, likelihood, of_hidden, of_weight = trl_orpo(orpo)
        policies = {name: [trl_policy(policy, name, batches) for batches in [1, 2]] for name in LOSSES}
    if sys.argv[1:] == ["keep"]:
        import trl

        kept = {
            "versions": f"torch {torch.__version__}, trl {trl.__version__}",
            "orpo": {
                "shape": [*orpo["ids"].shape, *orpo["weight"].shape],
                "text": torch.where(orpo["attends"] == 1, orpo["ids"], IGNORED).flatten().tolist(),
                "answer": orpo["answers"].long().flatten().tolist(),
                "beta": orpo["beta"],
                **{name: numbers(orpo[name]) for name in ["hidden", "weight"]},
                **{"loss": loss.item(), "grad_hidden": numbers(of_hidden), "grad_weight": numbers(of_weight)},
            },
            "policy": {
                "length": policy["log_p"].shape[1],
                **{name: policy[name] for name in ["beta", "low", "high", "batches"]},
                **{name: numbers(policy[name]) for name in ["log_p", "old", "reference", "advantages", "mask"]},
                "losses": {
                    name: {"loss": parts[0].item(), "gradient": numbers(parts[1])}
                    for name, (_, parts) in policies.items()
                },
            },
        }
        text = json.dumps(kept, indent=1)
        KEPT.write_text(re.sub(r"\[[^\[\]]*\]", lambda found: " ".join(found[0].split()), text) + "\n")
        return
    import transformers
    import trl

    print(f"torch {torch.__version__}, trl {trl.__version__}, transformers {transformers.__version__}, CPU\n")
    print("ORPO, two pairs with prompts: the term of the likelihood")
    print(f"  TRL's ORPOTrainer, chosen prompt and answer  {likelihood.item():.6f}")
    print(f"  chosen answer alone                          {of_answers(orpo).item():.6f}\n")
    tokens = [int(part.sum()) for part in policy["mask"].chunk(2)]
    print(f"TRL's GRPOTrainer, four completions: one batch, and two that share an update and have {tokens} tokens")
    for name, both in policies.items():
        whole, parts = (each[0].item() for each in both)
        far = (both[0][1] - both[1][1]).abs().max() / both[0][1].abs().max()
        print(f"  {name:<8} {whole:9.6f}  {parts:9.6f}  largest difference of a gradient over the largest {far:.1e}")
    print()
    for show in [masked_infinity, mean_of_nothing, rounding, one_pass, tied]:
        show()
        print()


if __name__ == "__main__":
    main()

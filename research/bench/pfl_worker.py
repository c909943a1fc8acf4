"""pfl-research on the same task: runs in an environment of its own, which has pfl 0.6 and torch.

Called as a script, with nothing of this project importable: ``python pfl_worker.py DIMENSION COHORT
USERS EACH ROUNDS``. Prints one JSON line with users a second, the median over rounds. Of a
language model's folder with TOKENS RANK behind: LoRA (peft) on next tokens of users' texts, which
are one batch each.

The task is that of ``research.bench.node``: a linear head on feature differences, one full-batch
gradient step a user, clipping to an l2 norm, Gaussian noise on the sum, one server step. Data lie
in memory as tensors before the clock starts, and nothing is evaluated.
"""

# pyright: reportMissingImports=false

import json
import sys
import time
from importlib.metadata import version
from statistics import median

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops.selector import set_framework_module
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

_WARMUP = 2


class Head(torch.nn.Module):
    """A linear reward on feature differences, with the BTL log loss."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(dimension, 1, bias=False)
        torch.nn.init.zeros_(self.linear.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.linear(x)

    def loss(self, x: torch.Tensor, y: torch.Tensor, is_eval: bool = False) -> torch.Tensor:
        """Mean log loss."""
        del is_eval
        return torch.nn.functional.binary_cross_entropy_with_logits(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor, is_eval: bool = True) -> dict:
        """None: nothing is evaluated."""
        del x, y, is_eval
        return {}


class Clock(TrainingProcessCallback):
    """Records the end of each round."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """The callback of pfl; training continues."""
        del aggregate_metrics, model, central_iteration
        self.ends.append(time.perf_counter())
        return False, Metrics()


class Language(torch.nn.Module):
    """A causal language model with LoRA, and the loss of the next token."""

    def __init__(self, folder: str, rank: int) -> None:
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        super().__init__()
        dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        self.words = network.config.vocab_size
        lora = LoraConfig(task_type="CAUSAL_LM", r=rank, lora_alpha=rank, lora_dropout=0.0)
        self.network = get_peft_model(network, lora)

    def loss(self, ids: torch.Tensor, targets: torch.Tensor, is_eval: bool = False) -> torch.Tensor:
        """Mean cross-entropy."""
        del is_eval
        return self.network(input_ids=ids, labels=targets).loss

    def metrics(self, ids: torch.Tensor, targets: torch.Tensor, is_eval: bool = True) -> dict:
        """None: nothing is evaluated."""
        del ids, targets, is_eval
        return {}


def main(
    where: str, cohort: int, users: int, each: int, rounds: int, *, tokens: int = 0, rank: int = 0
) -> None:
    """Train, and print the figures; ``where`` is a dimension, or with ``tokens`` a folder."""
    from pfl.internal.ops import pytorch_ops

    set_framework_module(pytorch_ops)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  what pfl samples users with
    head: torch.nn.Module
    if tokens:
        head = Language(where, rank)
        x = y = torch.randint(3, head.words, (users, each, tokens))
    else:
        head = Head(int(where))
        x = torch.randn(users, each, int(where)) / int(where) ** 0.5
        y = torch.ones(users, each, 1)
    data = FederatedDataset(
        lambda user: Dataset(raw_data=[x[user], y[user]]), get_user_sampler("random", range(users))
    )
    trained = [parameter for parameter in head.parameters() if parameter.requires_grad]
    model = PyTorchModel(
        head,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(trained, lr=1.0),
    )
    noise = CentrallyAppliedPrivacyMechanism(
        GaussianMechanism(clipping_bound=0.1, relative_noise_stddev=1.0)
    )
    clock = Clock()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds + _WARMUP,
            evaluation_frequency=10**9,
            train_cohort_size=cohort,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data, postprocessors=[noise]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=1.0, local_batch_size=None
        ),
        model_eval_params=None,
        callbacks=[clock],
    )
    seconds = np.diff(clock.ends)[_WARMUP - 1 :]
    figures = {"users_per_second": cohort / median(seconds.tolist()), "pfl": version("pfl")}
    print(json.dumps({**figures, "torch": torch.__version__}))


if __name__ == "__main__":
    cohort, users, each, rounds, *language = map(int, sys.argv[2:])
    sizes = dict(zip(("tokens", "rank"), language, strict=False))
    main(sys.argv[1], cohort, users, each, rounds, **sizes)

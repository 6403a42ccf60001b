"""Compute-optimal training of language models: how a budget splits into parameters and tokens.

Every published fit is brought to one form, a power law N = k·C^a: for C FLOPs in all, the model of N parameters
reaches the lowest loss, on D = C/(6·N) tokens. The fits are Hoffmann et al. 2022, "Training Compute-Optimal Large
Language Models" (approaches 1 to 3), and Besiroglu et al. 2024, "Chinchilla Scaling: A replication attempt", who
fitted the third approach's loss again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from batchfit.formulas.training_flops import FLOPS_PER_PARAMETER_AND_TOKEN, TERA

#: The rule of thumb that the fits are remembered by.
TOKENS_PER_PARAMETER = 20


@dataclass(frozen=True)
class Law:
    """The optimal parameters for a budget of C FLOPs: N = coefficient·C^exponent."""

    coefficient: float
    exponent: float

    @classmethod
    def through(cls, budget: float, parameters: float, other_budget: float, other_parameters: float) -> Law:
        """The law through two points. Where a paper prints a table and no coefficient, its ends give the law."""
        exponent = math.log(other_parameters / parameters) / math.log(other_budget / budget)
        return cls(parameters / budget**exponent, exponent)


@dataclass(frozen=True)
class LossFit:
    """A fitted loss in nats a token, L(N, D) = constant + A/N^α + B/D^β (Hoffmann et al. 2022, section 3.3)."""

    constant: float
    a: float
    b: float
    alpha: float
    beta: float

    def law(self) -> Law:
        """Where the loss is lowest at C = 6·N·D: N = G·(C/6)^(β/(α+β)), G = (α·A/(β·B))^(1/(α+β))
        (Hoffmann et al. 2022, section 3.3)."""
        exponent = self.beta / (self.alpha + self.beta)
        scale = (self.alpha * self.a / (self.beta * self.b)) ** (1 / (self.alpha + self.beta))
        return Law(scale / FLOPS_PER_PARAMETER_AND_TOKEN**exponent, exponent)


#: Hoffmann et al. 2022, table 3 and table A3: the first and the last line.
APPROACH_1 = Law.through(1.92e19, 400e6, 1.30e28, 10e12)
APPROACH_2 = Law.through(1.84e19, 400e6, 1.75e28, 10e12)
#: Hoffmann et al. 2022, appendix D: the constants as printed, rounded.
APPROACH_3_PRINTED = LossFit(constant=1.69, a=406.4, b=410.7, alpha=0.34, beta=0.28)
#: The same constants less rounded, as the paper's TeX source has them (Besiroglu et al. 2024).
APPROACH_3 = LossFit(constant=1.6934, a=406.4, b=410.7, alpha=0.3392, beta=0.2849)
#: Besiroglu et al. 2024: fitted again to the data, read off the first paper's figures.
REPLICATION = LossFit(constant=1.8172, a=482.01, b=2085.43, alpha=0.3478, beta=0.3658)
#: N = √(C/(6·20)): 20 tokens for each parameter at any budget.
RULE_OF_THUMB = Law((FLOPS_PER_PARAMETER_AND_TOKEN * TOKENS_PER_PARAMETER) ** -0.5, 0.5)

# The replication's constants, each by a name of its own: formulas know numbers only.
LOSS_FLOOR = REPLICATION.constant
SIZE_SCALE = REPLICATION.a
DATA_SCALE = REPLICATION.b
SIZE_EXPONENT = REPLICATION.alpha
DATA_EXPONENT = REPLICATION.beta
REPLICATION_COEFFICIENT = REPLICATION.law().coefficient
REPLICATION_EXPONENT = REPLICATION.law().exponent

SECONDS_PER_HOUR = 3600


def budget(by_hours: int, flops: float, gpu_hours: float, peak_tflops: float, utilisation: float) -> float:
    """FLOPs of a compute budget: given as such, or GPU-hours at a share of the card's peak."""
    return gpu_hours * SECONDS_PER_HOUR * peak_tflops * TERA * utilisation if by_hours == 1 else flops


def optimal_parameters(budget: float, coefficient: float, exponent: float) -> int:
    """Parameters of the model that a budget in FLOPs trains best: N = k·C^a."""
    return round(coefficient * float(budget**exponent))


def tokens_within(budget: float, parameters: float) -> int:
    """Tokens that a budget in FLOPs trains a model of that size on: D = C/(6·N)."""
    return round(budget / (FLOPS_PER_PARAMETER_AND_TOKEN * parameters))


def optimal_tokens(budget: float, optimal_parameters: int) -> int:
    """Tokens that spend the budget on the optimal model."""
    return tokens_within(budget, optimal_parameters)


def tokens_per_parameter(tokens: float, parameters: float) -> float:
    """Training tokens for each parameter: D/N."""
    return tokens / parameters


def optimal_tokens_per_parameter(optimal_tokens: int, optimal_parameters: int) -> float:
    """Training tokens for each parameter of the optimal model."""
    return tokens_per_parameter(optimal_tokens, optimal_parameters)


def budget_that_favours(parameters: float, coefficient: float, exponent: float) -> float:
    """The budget in FLOPs at which a model of that size is the compute-optimal one: C = (N/k)^(1/a)."""
    return float((parameters / coefficient) ** (1 / exponent))


def tokens_for_parameters(parameters: float, coefficient: float, exponent: float) -> int:
    """Compute-optimal tokens for a model of that size: D = (N/k)^(1/a)/(6·N)."""
    return tokens_within(budget_that_favours(parameters, coefficient, exponent), parameters)


def over_training(tokens: float, optimal_tokens: float) -> float:
    """How many times its compute-optimal tokens a model is trained on; below 1 it is under-trained."""
    return tokens / optimal_tokens


def loss(parameters: float, tokens: float) -> float:
    """The loss in nats a token by the replication's fit: L = E + A/N^α + B/D^β."""
    size_term = SIZE_SCALE / float(parameters**SIZE_EXPONENT)
    data_term = DATA_SCALE / float(tokens**DATA_EXPONENT)
    return LOSS_FLOOR + size_term + data_term


def optimal_loss(optimal_parameters: int, optimal_tokens: int) -> float:
    """The loss of the optimal model on its optimal tokens."""
    return loss(optimal_parameters, optimal_tokens)


def excess_loss(loss: float, optimal_loss: float) -> float:
    """How much more loss than the optimal model of the same budget."""
    return loss - optimal_loss


def flops_for_loss(loss: float) -> float:
    """The smallest budget in FLOPs that reaches a loss above the fit's floor: that of the compute-optimal model.

    On the optimum α·A/N^α = β·B/D^β, so L − E = (1 + α/β)·A/N^α gives N, and N = k·C^a gives C.
    """
    size_term = (loss - LOSS_FLOOR) / (1 + SIZE_EXPONENT / DATA_EXPONENT)
    parameters = float((SIZE_SCALE / size_term) ** (1 / SIZE_EXPONENT))
    return budget_that_favours(parameters, REPLICATION_COEFFICIENT, REPLICATION_EXPONENT)


def extra_compute(training_flops: float, least_flops: float) -> float:
    """How many times the compute of the optimal model of the same loss."""
    return training_flops / least_flops

# Written by `make docs`, for type checkers.
from maillard.policies.ada_ucb import AdaUCB as AdaUCB
from maillard.policies.anytime_parameter_free_thresholding import (
    AnytimeParameterFreeThresholding as AnytimeParameterFreeThresholding,
)
from maillard.policies.asymptotically_optimal_ucb import AsymptoticallyOptimalUCB as AsymptoticallyOptimalUCB
from maillard.policies.bernoulli_thompson import BernoulliThompson as BernoulliThompson
from maillard.policies.boltzmann import Boltzmann as Boltzmann
from maillard.policies.boltzmann_gumbel import BoltzmannGumbel as BoltzmannGumbel
from maillard.policies.deterministic_minimum_empirical_divergence import (
    DeterministicMinimumEmpiricalDivergence as DeterministicMinimumEmpiricalDivergence,
)
from maillard.policies.epsilon_greedy import EpsilonGreedy as EpsilonGreedy
from maillard.policies.garbage_in_reward_out import GarbageInRewardOut as GarbageInRewardOut
from maillard.policies.gaussian_thompson import GaussianThompson as GaussianThompson
from maillard.policies.indexed_minimum_empirical_divergence import (
    IndexedMinimumEmpiricalDivergence as IndexedMinimumEmpiricalDivergence,
)
from maillard.policies.inverse_gap_weighting import InverseGapWeighting as InverseGapWeighting
from maillard.policies.kl_maillard_sampling import KLMaillardSampling as KLMaillardSampling
from maillard.policies.kl_maillard_sampling_plus import KLMaillardSamplingPlus as KLMaillardSamplingPlus
from maillard.policies.kl_ucb import KLUCB as KLUCB
from maillard.policies.kl_ucb_plus_plus import KLUCBPlusPlus as KLUCBPlusPlus
from maillard.policies.linear_boltzmann import LinearBoltzmann as LinearBoltzmann
from maillard.policies.linear_epsilon_greedy import LinearEpsilonGreedy as LinearEpsilonGreedy
from maillard.policies.linear_indexed_minimum_empirical_divergence import (
    LinearIndexedMinimumEmpiricalDivergence as LinearIndexedMinimumEmpiricalDivergence,
)
from maillard.policies.linear_maillard_sampling import LinearMaillardSampling as LinearMaillardSampling
from maillard.policies.linear_minimum_empirical_divergence import (
    LinearMinimumEmpiricalDivergence as LinearMinimumEmpiricalDivergence,
)
from maillard.policies.linear_randomized_ucb import LinearRandomizedUCB as LinearRandomizedUCB
from maillard.policies.linear_thompson import LinearThompson as LinearThompson
from maillard.policies.linear_ucb import LinearUCB as LinearUCB
from maillard.policies.maillard_sampling import MaillardSampling as MaillardSampling
from maillard.policies.maillard_sampling_exponential_family import (
    ExponentialFamilyMaillardSampling as ExponentialFamilyMaillardSampling,
)
from maillard.policies.maillard_sampling_plus import MaillardSamplingPlus as MaillardSamplingPlus
from maillard.policies.maillard_sampling_practical import (
    PracticalMaillardSampling as PracticalMaillardSampling,
)
from maillard.policies.maillard_sampling_printed import PrintedMaillardSampling as PrintedMaillardSampling
from maillard.policies.minimum_empirical_divergence import (
    MinimumEmpiricalDivergence as MinimumEmpiricalDivergence,
)
from maillard.policies.moss import MOSS as MOSS
from maillard.policies.moss_anytime import AnytimeMOSS as AnytimeMOSS
from maillard.policies.optimally_confident_ucb import OptimallyConfidentUCB as OptimallyConfidentUCB
from maillard.policies.optimally_confident_ucb_anytime import (
    AnytimeOptimallyConfidentUCB as AnytimeOptimallyConfidentUCB,
)
from maillard.policies.perturbed_history_exploration import (
    PerturbedHistoryExploration as PerturbedHistoryExploration,
)
from maillard.policies.segmented_policy import SegmentedPolicy as SegmentedPolicy
from maillard.policies.sub_gaussian_thompson import SubGaussianThompson as SubGaussianThompson
from maillard.policies.targets import FixedArm as FixedArm
from maillard.policies.targets import FixedDistribution as FixedDistribution
from maillard.policies.ucb1 import UCB1 as UCB1
from maillard.policies.ucb_plus import UCBPlus as UCBPlus
from maillard.policies.uniform import Uniform as Uniform

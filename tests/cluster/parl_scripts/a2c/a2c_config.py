config = {
    # ==========  remote config ==========
    "master_address": None,  # a private cluster; "localhost:8010" for one that runs
    # ==========  env config ==========
    "env_name": "CartPole-v1",
    # ==========  actor config ==========
    "actor_num": 2,
    "env_num": 4,
    "sample_batch_steps": 20,
    # ==========  learner config ==========
    "max_sample_steps": 8000,
    "gamma": 0.99,
    "lambda": 0.95,
    "start_lr": 0.005,
    "entropy_coeff_scheduler": [(0, -0.01)],
    "vf_loss_coeff": 0.5,
    "get_remote_metrics_interval": 10,
    "learning_rate": 3e-4,
}

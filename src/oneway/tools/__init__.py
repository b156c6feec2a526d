"""What a user does: train, evaluate, predict, export, report, explore, suggest, reproduce, measure."""

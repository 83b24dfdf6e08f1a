"""Why a step runs, ran or did not: recipes compared, causes followed up, what earlier runs left."""

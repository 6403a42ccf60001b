"""The web app: a page, a JSON twin and an embed for every calculator on the shelf."""

"""The paths of fleet."""

from fastapi import APIRouter

router = APIRouter()
